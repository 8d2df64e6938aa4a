"use strict";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const number = (text) => Number(text.replace(/,/g, ""));
const signed = (n) => (n < 0 ? "" : "+") + n.toLocaleString("en");
const [controls] = all(".controls");
const [search] = all("input", controls), [reset] = all("button", controls), [said] = all("output", controls);
const sides = all(".icicle").map((svg) => ({ svg, name: svg.dataset.name, boxes: all("svg", svg).map((box) => {
  const [key, start, width] = box.dataset.box.split(" ").map(Number);
  const [title, , text] = box.children;
  return { box, text, key, start, width, top: Number(box.getAttribute("y")), name: title.textContent.split("\n")[0] };
}) }));
const rows = all(".functions tbody tr");
const nameOf = (row) => [...row.cells[0].childNodes].find((node) => node.nodeType === Node.TEXT_NODE).data;
const greeting = said.textContent;
let scale = Math.max(...sides.map((side) => side.boxes[0].width), 1);
const shownWidth = (box, zoomed) => Math.min(box.width, zoomed.width) / scale;

// Labels that fit the window, in letters of 6.7 pixels.
function label() {
  for (const side of sides) {
    const pixels = side.svg.getBoundingClientRect().width;
    for (const box of side.boxes) {
      const room = Math.floor((pixels * shownWidth(box, side.zoomed) - 6) / 6.7);
      box.text.textContent = box.name.length <= room ? box.name : room > 2 ? box.name.slice(0, room - 1) + "…" : "";
    }
  }
}

// The same chain of callers on each side, or else the widest box of that function, or nothing.
function zoom(box) {
  for (const side of sides) {
    const named = side.boxes.filter((other) => other.name === box.name).sort((a, b) => b.width - a.width);
    side.zoomed = side.boxes.includes(box) ? box : side.boxes.find((other) => other.key === box.key) || named[0];
    side.found = Boolean(side.zoomed);
    side.zoomed ||= { start: -1, width: 0, top: 0 };
  }
  scale = Math.max(...sides.map((side) => side.zoomed.width), 1);
  for (const { boxes, zoomed } of sides) {
    for (const one of boxes) {
      const within = one.top >= zoomed.top && one.start >= zoomed.start && one.start + one.width <= zoomed.start + zoomed.width;
      const above = one.top < zoomed.top && one.start <= zoomed.start && one.start + one.width >= zoomed.start + zoomed.width;
      one.box.style.display = within || above ? "" : "none";
      one.box.classList.toggle("above", above);
      one.box.setAttribute("x", `${above ? 0 : (100 * (one.start - zoomed.start)) / scale}%`);
      one.box.setAttribute("width", `${100 * shownWidth(one, zoomed)}%`);
    }
  }
  reset.disabled = box === sides[0].boxes[0];
  const sizes = sides.map((side) => `${side.name} ${side.found ? side.zoomed.width.toLocaleString("en") : "has none"}`);
  said.textContent = reset.disabled ? greeting : `${box.name}, with callees: ${sizes.join(", ")}`;
  label();
}

// The table has every function; the pictures may not.
function find() {
  const wanted = search.value.trim().toLowerCase();
  const matches = (name) => wanted !== "" && name.toLowerCase().includes(wanted);
  for (const { svg, boxes } of sides) {
    svg.classList.toggle("searched", wanted !== "");
    for (const one of boxes) one.box.classList.toggle("found", matches(one.name));
  }
  const found = new Set(rows.filter((row) => matches(nameOf(row))));
  for (const row of rows) row.hidden = wanted !== "" && !found.has(row);
  const own = (row, side) => number(row.cells[side + 1].textContent);
  const sums = sides.map((_, side) => [...found].reduce((sum, row) => sum + own(row, side), 0));
  const each = sums.map((sum, n) => `${sides[n].name} ${sum.toLocaleString("en")}`.trim());
  if (sums.length > 1) each.push(`NEW-BASE ${signed(sums[1] - sums[0])}`);
  said.textContent = wanted ? `${found.size} function${found.size === 1 ? "" : "s"}, own: ${each.join(", ")}` : greeting;
}

all(".sort th").forEach((head, column, heads) => {
  const button = document.createElement("span");
  button.setAttribute("role", "button");
  button.tabIndex = 0;
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("keydown", (event) => { if (event.key === "Enter") button.click(); });
  button.addEventListener("click", () => {
    const order = head.ariaSort === (column ? "descending" : "ascending") ? -1 : 1;
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", (order > 0) === (column > 0) ? "descending" : "ascending");
    const value = (row) => column ? number(row.cells[column].textContent) : nameOf(row);
    const compare = (a, b) => column ? value(b) - value(a) : value(a) < value(b) ? -1 : 1;
    rows.sort((a, b) => order * compare(a, b));
    rows[0]?.parentNode.append(...rows);
  });
});
for (const side of sides) for (const box of side.boxes) box.box.addEventListener("click", () => zoom(box));
const home = () => zoom(sides[0].boxes[0]);
reset.addEventListener("click", home);
search.addEventListener("input", find);
addEventListener("keydown", (event) => { if (event.key === "Escape" && !search.value) home(); });
addEventListener("resize", label);
controls.hidden = false;
home();
