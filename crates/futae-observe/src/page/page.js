"use strict";
// Without this the browser loads the page anew; with it only the numbers change.
const stale = document.getElementById("stale");
let last = Date.now();
async function renew() {
  if (!document.hidden && getSelection().isCollapsed) {
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(answer.status);
      const text = await answer.text();
      const part = text.slice(text.indexOf("<main>"), text.indexOf("</main>"));
      const page = new DOMParser().parseFromString(part, "text/html");
      const [old, fresh] = [document, page].map((one) => one.querySelector("main"));
      const far = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
      old.replaceWith(document.adoptNode(fresh));
      fresh.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = far[at] ?? 0; });
      last = Date.now();
      stale.textContent = "";
    } catch {
      stale.textContent = `No answer for ${Math.round((Date.now() - last) / 1000)} s: these numbers are old.`;
    }
  }
  setTimeout(renew, 2000);
}
setTimeout(renew, 2000);
