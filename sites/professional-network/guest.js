"use strict";
(function () {
  var TRADES = ["Cooper", "Surveyor", "Bookbinder", "Network engineer", "Baker", "Glazier", "Statistician", "Nurse", "Luthier", "Harbour pilot", "Translator", "Roofer", "Gardener", "Typesetter"];
  var PEOPLE = [["Hanne Marsh", "Bookbinder"], ["Osei Bram", "Network engineer"], ["Lale Ferro", "Glazier"], ["Petr Quill", "Harbour pilot"], ["Ruth Adeyi", "Statistician"]];

  document.getElementById("jobs").append(...TRADES.map(function (trade) {
    var item = document.createElement("li");
    item.textContent = trade;
    return item;
  }));
  document.getElementById("people").append(...PEOPLE.map(function (person, number) {
    var item = document.createElement("li");
    var face = new Image(64, 64);
    face.alt = "";
    face.src = "https://media.guildhall.example/face-" + (number + 1) + ".png";
    var trade = document.createElement("small");
    trade.textContent = person[1];
    item.append(face, person[0], trade);
    return item;
  }));
  document.forms[0].addEventListener("submit", function (event) {
    event.preventDefault();
    document.querySelector(".answer").textContent = "This page was made for measurements: nothing has been sent.";
  });
  var texts = Object.keys(d.r("messages").text).length;
  document.getElementById("notice").textContent = "Privacy · Cookies · Community rules · Language (" + texts + " messages)";
  document.body.dataset.check = d.r("frontend/main").check;

  var tag = document.createElement("script");
  tag.src = "https://px.adledger.example/insight.js";
  document.head.append(tag);
})();
