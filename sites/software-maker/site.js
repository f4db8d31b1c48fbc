"use strict";
(function () {
  var STORIES = [["A clinic that answers by noon", "How eight nurses share one calendar and no passwords."], ["The ferry that plans itself", "Timetables from tides, recomputed four times an hour."], ["Small town, whole archive", "Two centuries of council minutes that can be searched."]];
  var stories = document.getElementById("stories");
  stories.append(...STORIES.map(function (story, number) {
    var article = document.createElement("article");
    article.innerHTML = '<img alt="" width="360" height="200" src="https://images.millwright.example/story-' + (number + 1) + '.png"><h3></h3><p></p><a href="/story">Read the story</a>';
    article.querySelector("h3").textContent = story[0];
    article.querySelector("p").textContent = story[1];
    return article;
  }));
  stories.removeAttribute("aria-busy");
  document.body.dataset.check = d.r("framework/main").check;
  var tag = document.createElement("script");
  tag.src = "https://tags.runelock.example/manager.js";
  document.head.append(tag);
})();
