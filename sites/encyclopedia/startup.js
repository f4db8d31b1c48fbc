"use strict";
// d(name, factory) defines a module, d.r(name) runs it once and returns its exports.
var d = function (name, factory) { d.f[name] = factory; };
d.f = {};
d.m = {};
d.r = function (name) {
  if (!d.m[name]) d.f[name](d.r, (d.m[name] = {}));
  return d.m[name];
};
(function () {
  var script = document.createElement("script");
  script.src = "/modules/interface.js";
  script.onload = function () {
    document.documentElement.dataset.check = d.r("interface/main").check;
    // What the interface adds to a page that reads without it: the search field is focused by a key.
    addEventListener("keydown", function (event) {
      if (event.key === "/" && document.activeElement === document.body) {
        event.preventDefault();
        document.querySelector("[type=search]").focus();
      }
    });
  };
  document.head.append(script);
})();
