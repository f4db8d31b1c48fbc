"use strict";
(function () {
  var OFFERS = [["Bottle, 0.7 l, steel", 24, 38], ["Wall clock, quiet", 31, 45], ["Wrist watch, solar", 79, 119], ["Sea stories, 412 pages", 12, 19], ["Flask for two", 21, 27]];
  var count = 0;
  var list = document.getElementById("offers");
  OFFERS.forEach(function (offer, number) {
    var item = document.createElement("li");
    item.innerHTML = '<img width="150" height="150" alt="" src="https://pictures.harbourmart.example/offer-' + (number + 1) + '.png"><b></b><s></s><div></div><button type="button">Into the basket</button>';
    item.querySelector("b").textContent = "-" + Math.round(100 - (100 * offer[1]) / offer[2]) + "%";
    item.querySelector("s").textContent = "$" + offer[2];
    item.querySelector("div").textContent = "$" + offer[1] + " – " + offer[0];
    item.querySelector("button").addEventListener("click", function () {
      document.getElementById("count").textContent = ++count;
    });
    list.append(item);
  });
  list.dataset.check = d.r("commerce/main").check;
})();
