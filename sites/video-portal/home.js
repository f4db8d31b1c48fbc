"use strict";
(function () {
  var films = document.getElementById("films");
  var chips = ["All", "Music", "Rivers", "Carpentry", "Live", "Trains", "Cooking", "Talks", "Storms", "Mathematics", "Choirs", "New to you"];

  function make(tag, properties, ...children) {
    var element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }
  document.getElementById("chips").append(...chips.map(function (name) { return make("button", { type: "button" }, name); }));
  for (var number = 0; number < 12; number++) {
    films.append(make("li", { className: "waiting" }, make("div", { className: "still" }), make("div", { className: "about" })));
  }

  // The list of films arrives as a call of this function; with it come the pictures' addresses and what counts views.
  window.browse = function (answer) {
    films.replaceChildren(...answer.films.map(function (film) {
      var channel = answer.channels[film.channel];
      return make("li", {},
        make("div", { className: "still" }, make("img", { alt: "", src: answer.stills + film.id + ".png" }), make("time", {}, film.length)),
        make("div", { className: "about" }, make("img", { alt: "", width: 36, height: 36, src: answer.faces + channel.face + ".png" }), make("b", {}, film.title), make("span", {}, channel.name), make("span", {}, film.views + " views · " + film.age + " ago")));
    }));
    films.parentElement.removeAttribute("aria-busy");
    document.head.append(make("script", { src: answer.counter }));
  };
  films.dataset.check = d.r("desktop/main").check;
  films.dataset.messages = Object.keys(d.r("messages").text).length;
  document.head.append(make("script", { src: "https://api.lanternreel.example/browse.js" }));
})();
