"use strict";
// The part of a page that changes is fetched again: after 5 s, more seldom while nothing does
// or many look on, as the server says, never while nobody looks, no more once it says that it
// is final. Without scripts the page's link does it. htmx makes the request; what it may turn
// into elements is HTML of ours alone.
if (window.trustedTypes) trustedTypes.createPolicy("default", { createHTML: (text) => text });
(() => {
  const LEAST_MS = 5000, MOST_MS = 60000;
  let pause = LEAST_MS, timer = 0;
  const part = () => document.querySelector("#live[hx-get]");
  const tell = (text) => {
    const said = document.getElementById("said");
    if (text && said.textContent !== text) said.textContent = text;
  };
  const wait = (ms) => {
    clearTimeout(timer);
    const ask = () => window.htmx && htmx.trigger(part(), "live");
    if (part() && !document.hidden) timer = setTimeout(ask, ms);
  };
  document.addEventListener("visibilitychange", () => wait(0));
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    const now = document.getElementById("live");
    if (detail.xhr.status === 401) {
      now.removeAttribute("hx-get");
      document.getElementById("said").className = "notice";
      tell(now.dataset.over);
      return;
    }
    pause = detail.xhr.status === 200 ? LEAST_MS : Math.min(MOST_MS, 1.5 * pause);
    tell(now.dataset.said);
    wait(Math.max(pause, 1000 * (detail.xhr.getResponseHeader("live-again-s") || 0)));
  });
  wait(pause);
})();
