"use strict";
// Tag manager: its rules say which tags this page gets.
(function () {
  function fetchScript(url, then) {
    var script = document.createElement("script");
    script.src = url;
    script.onload = then;
    document.head.append(script);
  }
  window.runelock = { fired: [] };
  fetchScript("https://tags.runelock.example/rules.js", function () {
    runelock.fired.push(d.r("rules/main").check);
    fetchScript("https://scripts.pathlight.example/path.js");
  });
})();
