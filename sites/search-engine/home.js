"use strict";
(function () {
  var input = document.querySelector("[type=search]");
  var list = document.querySelector(".box ul");
  var STARTS = ["weather on the coast", "weather tomorrow", "when do swifts leave", "what is a round trip", "water levels", "why is the first load slow"];

  input.addEventListener("input", function () {
    var found = STARTS.filter(function (start) { return input.value && start.startsWith(input.value.toLowerCase()); });
    list.hidden = found.length === 0;
    list.replaceChildren(...found.map(function (text) {
      var item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
  });
  input.focus();

  // The scripts of the results page come ahead of the first search; async, so in any order.
  addEventListener("load", function () {
    document.body.dataset.check = d.r("core/main").check;
    document.body.dataset.messages = Object.keys(d.r("messages").text).length;
  });
  var bar = document.createElement("script");
  bar.src = "https://apis.lodestar.example/bar.js";
  document.head.append(bar);
})();
