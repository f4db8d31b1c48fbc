"use strict";
// Starter of a measuring service; what it measures with comes in a file of its own.
(function () {
  var script = document.createElement("script");
  script.src = "https://metrics.tallyhouse.example/observe.js";
  script.onload = function () {
    window.tally = { page: location.pathname, check: d.r("observe/main").check };
  };
  document.head.append(script);
})();
