"use strict";
// Banner that asks for consent. Its list of vendors is long and comes in a file of its own.
(function () {
  function show() {
    var banner = document.createElement("div");
    banner.setAttribute("role", "dialog");
    banner.setAttribute("aria-label", "Cookies");
    banner.style.cssText = "position:fixed;left:0;right:0;bottom:0;z-index:9;display:flex;flex-wrap:wrap;gap:12px;align-items:center;justify-content:center;padding:14px 24px;background:#22262c;color:#fff";
    banner.innerHTML = "<span></span><button type=button>Accept</button><button type=button>Reject</button><button type=button>Choose</button>";
    banner.querySelectorAll("button").forEach(function (button) {
      button.style.cssText = "padding:8px 20px;border:1px solid #fff;background:none;color:#fff;font:inherit";
      button.addEventListener("click", function () { banner.remove(); });
    });
    banner.firstChild.textContent = "We and our partners would like to count your visit.";
    document.body.append(banner);
    var vendors = document.createElement("script");
    vendors.src = "https://consent.askfirst.example/vendors.js";
    vendors.onload = function () {
      banner.firstChild.textContent = "We and our " + Object.keys(d.r("vendors").text).length + " partners would like to count your visit.";
    };
    document.head.append(vendors);
  }
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", show);
  else show();
})();
