/* The page itself, built by React in the browser: loading screen, cookie dialog, login form. */
"use strict";
(function () {
  var h = React.createElement;
  var useState = React.useState;
  var useEffect = React.useEffect;
  var useRef = React.useRef;

  // What a bundle does before its first render: run the modules the page needs, leave the others alone.
  var check = framelight.require("commons/main").check + framelight.require("widgets/main").check;
  var messages = Object.keys(framelight.require("locale").text).length;

  var SCENES = [1, 2, 3, 4].map(function (number) {
    return "/images/scene-" + number + ".png";
  });
  var PICTURES = SCENES.concat("/images/phone.png", "/images/store.png", "/images/market.png");
  var FOOTER = ["About", "Blog", "Jobs", "Help", "Developers", "Privacy", "Terms", "Locations", "Lite", "Contact"];
  var LANGUAGES = ["English", "Dansk", "Deutsch", "Español", "Français", "Italiano", "Nederlands", "Polski", "Svenska"];

  // Atomic classes of styles/atoms.css: flex, column, items centred.
  var ROW = "x7wp0rq";
  var COLUMN = "x7wp0rq xfk8lar";

  function Mark(props) {
    var blades = [0, 60, 120, 180, 240, 300].map(function (angle) {
      return h("path", { key: angle, d: "M24 3.5A20.5 20.5 0 0 1 41.8 13.8L27.4 18z", transform: "rotate(" + angle + " 24 24)" });
    });
    return h("svg", { className: "mark", width: props.size, height: props.size, viewBox: "0 0 48 48", "aria-hidden": true }, blades);
  }

  function Wordmark() {
    return h("h1", { className: "wordmark " + ROW }, h(Mark, { size: 38 }), "Framelight");
  }

  function Loading(props) {
    var percent = Math.round((100 * props.done) / PICTURES.length);
    return h(
      "div",
      { className: "loading " + COLUMN, role: "progressbar", "aria-label": "Loading", "aria-valuenow": percent },
      h(Mark, { size: 48 }),
      h("div", { className: "bar" }, h("div", { style: { width: percent + "%" } })),
      h("p", null, "Loading Framelight")
    );
  }

  function Choice(props) {
    return h(
      "details",
      { className: "choice", open: props.open },
      h("summary", null, props.title, h("span", null, props.state)),
      h("p", null, props.children)
    );
  }

  function CookieDialog(props) {
    var first = useRef(null);
    useEffect(function () {
      first.current.focus();
    }, []);
    return h(
      "div",
      { className: "backdrop " + ROW },
      h(
        "div",
        { className: "dialog", role: "dialog", "aria-modal": true, "aria-labelledby": "cookie-title" },
        h("h2", { id: "cookie-title" }, "Allow cookies from Framelight in this browser?"),
        h(
          "div",
          { className: "dialog-text" },
          h("p", null, "Cookies keep you signed in, remember what you chose and tell us how quickly pages load. You decide which of them this browser keeps, and you can change your mind at any time."),
          h(Choice, { title: "Essential cookies", state: "Always on", open: true }, "Without these the login form below could not tell you from somebody else."),
          h(Choice, { title: "Optional cookies", state: "Your choice", open: false }, "These count visits and remember the pictures you lingered on."),
          h("p", null, "Details are in our ", h("a", { href: "/cookies" }, "cookie policy"), ".")
        ),
        h("button", { ref: first, className: "primary", onClick: props.onChoice }, "Allow all cookies"),
        h("button", { className: "plain", onClick: props.onChoice }, "Only allow essential cookies")
      )
    );
  }

  function Picture(props) {
    return h("img", {
      src: props.src,
      width: props.width,
      height: props.height,
      className: props.className,
      alt: props.alt || "",
      onLoad: props.onDone,
      onError: props.onDone,
    });
  }

  function Phones(props) {
    var shown = props.shown;
    return h(
      "div",
      { className: "phones", "aria-hidden": true },
      h(
        "div",
        { className: "phone behind" },
        h("img", { src: "/images/phone.png", width: 278, height: 560, alt: "" }),
        h("img", { src: SCENES[3], width: 250, height: 528, className: "screen", alt: "" })
      ),
      h(
        "div",
        { className: "phone" },
        h(Picture, { src: "/images/phone.png", width: 278, height: 560, onDone: props.onDone }),
        SCENES.map(function (src, number) {
          var className = "screen" + (number === shown ? "" : " away");
          return h(Picture, { key: src, src: src, width: 250, height: 528, className: className, onDone: props.onDone });
        })
      )
    );
  }

  function Field(props) {
    return h(
      "label",
      { className: "field" + (props.value ? " filled" : "") },
      h("span", null, props.label),
      h("input", {
        name: props.name,
        type: props.type,
        value: props.value,
        autoComplete: props.complete,
        autoCapitalize: "off",
        onChange: function (event) {
          props.onChange(event.target.value);
        },
      })
    );
  }

  function LoginForm() {
    var user = useState("");
    var password = useState("");
    var answer = useState("");
    var ready = user[0].length > 0 && password[0].length >= 6;
    function submit(event) {
      event.preventDefault();
      answer[1]("This page was made for measurements: nothing has been sent.");
    }
    return h(
      "form",
      { className: "card " + COLUMN, "aria-label": "Log in", onSubmit: submit },
      h(Wordmark),
      h(Field, { name: "username", type: "text", label: "Telephone number, name or email", complete: "username", value: user[0], onChange: user[1] }),
      h(Field, { name: "password", type: "password", label: "Password", complete: "current-password", value: password[0], onChange: password[1] }),
      h("button", { className: "primary", type: "submit", disabled: !ready }, "Log in"),
      h("div", { className: "or " + ROW }, "or"),
      h("a", { className: "strong", href: "/accounts/link" }, "Log in with a link by email"),
      h("p", { className: "answer", role: "status" }, answer[0]),
      h("a", { className: "small", href: "/accounts/password" }, "Forgot your password?")
    );
  }

  function Store(props) {
    return h(
      "a",
      { className: "store " + ROW, href: props.href },
      h(Picture, { src: props.src, width: 36, height: 36, onDone: props.onDone }),
      h("span", null, h("small", null, props.small), props.name)
    );
  }

  function Footer() {
    return h(
      "footer",
      { className: COLUMN },
      h("nav", null, FOOTER.map(function (name) {
        return h("a", { key: name, href: "/" + name.toLowerCase() }, name);
      })),
      h(
        "p",
        null,
        h("select", { "aria-label": "Language", defaultValue: "English" }, LANGUAGES.map(function (name) {
          return h("option", { key: name }, name);
        })),
        "Framelight is made up: a stand-in for www.instagram.com, written for network measurements with crosslayer"
      )
    );
  }

  function App() {
    var done = useState(0);
    var asked = useState(true);
    var shown = useState(0);
    var loaded = done[0] === PICTURES.length;
    useEffect(
      function () {
        if (!loaded) return undefined;
        var timer = setInterval(function () {
          shown[1](function (number) {
            return (number + 1) % SCENES.length;
          });
        }, 5000);
        return function () {
          clearInterval(timer);
        };
      },
      [loaded]
    );
    function onDone() {
      done[1](function (count) {
        return count + 1;
      });
    }
    return h(
      React.Fragment,
      null,
      h(
        "main",
        { className: ROW, "aria-busy": !loaded },
        h(Phones, { shown: shown[0], onDone: onDone }),
        h(
          "div",
          { className: "entrance" },
          h(LoginForm),
          h("p", { className: "card join" }, "New to Framelight? ", h("a", { className: "strong", href: "/accounts/join" }, "Join")),
          h("p", { className: "get" }, "Get the app."),
          h(
            "div",
            { className: "stores " + ROW },
            h(Store, { href: "/store", src: "/images/store.png", small: "Download from the", name: "Tide Store", onDone: onDone }),
            h(Store, { href: "/market", src: "/images/market.png", small: "Get it at the", name: "Quay Market", onDone: onDone })
          )
        )
      ),
      h(Footer),
      loaded ? null : h(Loading, { done: done[0] }),
      asked[0] ? h(CookieDialog, { onChoice: function () { asked[1](false); } }) : null
    );
  }

  var container = document.getElementById("app");
  container.dataset.check = check;
  container.dataset.messages = messages;
  // Rendered at once and not when React's scheduler comes to it: the pictures start before the load event.
  ReactDOM.flushSync(function () {
    ReactDOM.createRoot(container).render(h(App));
  });
})();
