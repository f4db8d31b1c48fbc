"use strict";
// Tag of an advertising exchange: picks what to show in each marked place, and fetches the code that counts it.
(function () {
  var STOCK = { wide: { file: "wide.png", width: 728, height: 90, text: "Chairs for long talks" }, box: { file: "box.png", width: 300, height: 250, text: "One lamp. Every evening." } };
  function fill() {
    document.querySelectorAll("[data-ad]").forEach(function (place) {
      var offer = STOCK[place.dataset.ad];
      var picture = new Image(offer.width, offer.height);
      var text = document.createElement("b");
      picture.alt = "";
      picture.src = "https://creatives.adwharf.example/" + offer.file;
      text.textContent = offer.text;
      place.append(picture, text);
    });
    var script = document.createElement("script");
    script.src = "https://serve.adwharf.example/auction.js";
    script.onload = function () { window.adwharf = { check: d.r("auction/main").check }; };
    document.head.append(script);
  }
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", fill);
  else fill();
})();
