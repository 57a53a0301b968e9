"use strict";
(() => {
  const tip = document.getElementById("tip");
  let near = null;

  function leave() {
    if (near) near.classList.remove("near");
    near = null;
    tip.hidden = true;
  }

  // What is said of a point or a bar when the pointer comes near.
  for (const plot of document.querySelectorAll("svg.plot")) {
    const marks = [...plot.querySelectorAll(".pt, .bar")];
    for (const mark of marks) {
      const title = mark.querySelector("title");
      if (!title) continue;
      mark.dataset.tip = title.textContent;
      mark.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    plot.addEventListener("pointermove", (event) => {
      let best = null;
      let least = 30;
      for (const mark of marks) {
        const box = mark.getBoundingClientRect();
        if (!box.width || mark.closest(".off")) continue;
        const isBar = mark.classList.contains("bar");
        const x = isBar ? 0 : event.clientX - (box.left + box.right) / 2;
        const y = event.clientY - (box.top + box.bottom) / 2;
        const distance = Math.hypot(x, y);
        if (distance < least) [best, least] = [mark, distance];
      }
      if (best !== near) leave();
      if (!best) return;
      near = best;
      best.classList.add("near");
      tip.textContent = best.dataset.tip;
      tip.hidden = false;
      const room = window.innerWidth - tip.offsetWidth - 8;
      tip.style.left = Math.max(8, Math.min(event.clientX + 14, room)) + "px";
      const above = event.clientY - tip.offsetHeight - 12;
      tip.style.top = (above > 0 ? above : event.clientY + 18) + "px";
    });
    plot.addEventListener("pointerleave", leave);
  }

  // A press on a name in a legend hides its line, another shows it again.
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const isOn = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isOn));
      const line = button.dataset.line;
      const drawn = button.closest("figure").querySelectorAll(
        `.series[data-line="${line}"], .series[data-rule="${line}"]`,
      );
      drawn.forEach((series) => series.classList.toggle("off", !isOn));
    });
  }

  // A press on a column's head sorts by it, another the other way round.
  const heads = [...document.querySelectorAll("#numbers th")];
  heads.forEach((head, column) => {
    head.addEventListener("click", () => {
      const isUp = head.getAttribute("aria-sort") === "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      const body = document.querySelector("#numbers tbody");
      const compare = (a, b) => {
        const [x, y] = [a.cells[column], b.cells[column]];
        const byText = x.textContent.localeCompare(y.textContent);
        return "by" in x.dataset && "by" in y.dataset ? x.dataset.by - y.dataset.by : byText;
      };
      const rows = [...body.rows].sort((a, b) => (isUp ? compare(a, b) : compare(b, a)));
      body.append(...rows);
    });
  });
})();
