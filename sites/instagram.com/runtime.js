/* Module loader of the page: d(name, factory) defines a module, require(name) runs it once and returns its exports. */
"use strict";
var framelight = (function () {
  var factories = new Map();
  var modules = new Map();

  function require(name) {
    var exports = modules.get(name);
    if (exports === undefined) {
      var factory = factories.get(name);
      if (factory === undefined) throw new Error("There is no module " + name);
      exports = {};
      modules.set(name, exports);
      factory(require, exports);
    }
    return exports;
  }

  function define(name, factory) {
    if (factories.has(name)) throw new Error("Two modules are named " + name);
    factories.set(name, factory);
  }

  return {
    define: define,
    require: require,
    counts: function () {
      return { defined: factories.size, ran: modules.size };
    },
  };
})();
var d = framelight.define;
d("ui/element", function (require, exports) {
  exports.create = React.createElement;
});
