"use strict";
(function () {
  var MEDIA = "https://media.commonbench.example";
  var PEOPLE = [["Ines Albrook", "number 4"], ["Tomas Reed", "number 9"], ["Farah Lind", "the old mill"], ["Jon Okafor", "number 17"], ["Mette Aas", "number 22"]];
  var POSTS = [
    { by: 0, when: "2 h", text: "First light over the allotments this morning. The beds by the wall are free again from May: two are taken, one is not.", photo: "allotment", liked: 48, said: 12 },
    { by: 2, when: "yesterday", text: "Somebody left this backpack on the bench at the weir. It is dry, it holds a half-eaten pear, and it waits at the mill.", photo: "backpack", liked: 21, said: 7 },
    { by: 3, when: "Monday", text: "The ladder is back in the shed. Whoever mended the third rung: thank you, it no longer sings.", liked: 63, said: 5 },
  ];

  function make(tag, properties, ...children) {
    var element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }
  function face(number) {
    return make("img", { className: "face", width: 40, height: 40, alt: "", src: MEDIA + "/f/" + (number + 1) + ".png" });
  }
  function post(entry) {
    var article = make("article", { className: "card post" },
      make("header", {}, face(entry.by), make("div", {}, make("b", {}, PEOPLE[entry.by][0]), make("small", {}, entry.when + " · " + PEOPLE[entry.by][1]))),
      make("p", {}, entry.text));
    if (entry.photo) article.append(make("img", { className: "photo", alt: "", width: 420, height: entry.photo === "backpack" ? 220 : 240, src: MEDIA + "/p/" + entry.photo + ".png" }));
    article.append(make("p", {}, make("small", {}, entry.liked + " like this · " + entry.said + " answers")),
      make("div", { className: "acts" }, ...["Like", "Answer", "Pass on"].map(function (act) { return make("button", { type: "button" }, act); })));
    return article;
  }

  var wall = document.getElementById("wall");
  wall.querySelectorAll(".waiting").forEach(function (card) { card.remove(); });
  wall.append(...POSTS.map(post));
  wall.removeAttribute("aria-busy");
  wall.dataset.check = d.r("commons/main").check;
  document.getElementById("people").append(...PEOPLE.map(function (person, number) {
    return make("li", {}, face(number), make("span", {}, make("b", {}, person[0]), make("small", {}, person[1])));
  }));
})();
