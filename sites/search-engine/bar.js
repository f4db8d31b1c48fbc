"use strict";
// Bar of applications: draws its tiles, then fetches what they open with.
(function () {
  var NAMES = ["Mail", "Maps", "Days", "Notes", "Sheets", "Photos", "Calls", "News"];
  var bar = document.getElementById("bar");
  NAMES.forEach(function (name, number) {
    var tile = document.createElement("a");
    var picture = new Image(40, 40);
    tile.href = "/" + name.toLowerCase();
    picture.alt = "";
    picture.src = "https://apis.lodestar.example/bar/tile-" + (number + 1) + ".png";
    tile.append(picture, name);
    bar.append(tile);
  });
  document.getElementById("open").addEventListener("click", function (event) {
    event.currentTarget.setAttribute("aria-expanded", String(!bar.classList.toggle("closed")));
  });
  var widgets = document.createElement("script");
  widgets.src = "https://apis.lodestar.example/bar/widgets.js";
  widgets.onload = function () { bar.dataset.check = d.r("widgets/main").check; };
  document.head.append(widgets);
})();
