"use strict";
// Counter of views: one picture of one pixel for each page.
(function () {
  var shown = Array.from(document.querySelectorAll("#films b"), function (title) { return title.textContent.length; });
  window.viewcount = { page: location.pathname, shown: shown, width: innerWidth, at: Math.round(performance.now()) };
  var pixel = new Image(1, 1);
  pixel.alt = "";
  pixel.src = "https://log.viewcount.example/seen.png";
})();
