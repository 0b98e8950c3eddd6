"use strict";
// Sorts the tables of figures: by a click on a heading, or for all tables by an address that ends in #sort=NAME.
// Written without the characters that XML reserves.
(function () {
  function value(row, column) {
    const cell = row.cells[column];
    return Number(column === 0 ? row.dataset.place : cell.dataset.value);
  }
  function sort(heading, direction) {
    const table = heading.closest("table");
    const column = heading.cellIndex;
    const sign = direction === "descending" ? -1 : 1;
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort(function (a, b) {
      const by = sign * (value(a, column) - value(b, column));
      return by || value(a, 0) - value(b, 0);
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction);
    table.tBodies[0].append(...rows);
  }
  // The best first; the other way round when that is so already.
  function next(heading) {
    const first = heading.dataset.better === "higher" ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    return heading.getAttribute("aria-sort") === first ? other : first;
  }
  function fromAddress() {
    const wanted = /^#sort=([a-z0-9_]+)$/.exec(location.hash);
    if (wanted === null) return;
    for (const heading of document.querySelectorAll('th[data-metric="' + wanted[1] + '"]')) {
      heading.removeAttribute("aria-sort");
      sort(heading, next(heading));
    }
  }
  for (const heading of document.querySelectorAll("table.figures thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    button.addEventListener("click", function () { sort(heading, next(heading)); });
    heading.replaceChildren(button);
  }
  window.addEventListener("hashchange", fromAddress);
  fromAddress();
})();
