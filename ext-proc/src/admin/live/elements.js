// Every text of the service enters the page as text, never as markup.
const $ = id => document.getElementById(id);
function element(name, text, className, title) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  if (title) made.title = title;
  return made;
}
function cell(row, text, className, title) { row.append(element("td", text ?? "–", className, title)); }
function number(value, digits = 0) { return value === null || value === undefined ? null : value.toLocaleString("en", { maximumFractionDigits: digits }); }
function time(ms) {
  if (ms === null || ms === undefined) return null;
  return ms < 1000 ? number(ms, ms < 10 ? 1 : 0) + " ms" : number(ms / 1000, 1) + " s";
}
function clock(unixMs) { return new Date(unixMs).toISOString().slice(11, 19); }
function percent(part, whole) { return whole > 0 ? (100 * part / whole).toFixed(0) + " %" : null; }
function meter(share) {
  const made = element("meter");
  made.value = share;
  return made;
}
function meterCell(row, share) {
  const made = element("td", share === null || share === undefined ? "–" : undefined);
  if (share !== null && share !== undefined) made.append(meter(share), ` ${percent(share, 1)}`);
  row.append(made);
}
function tile(parent, name, value, title) {
  const made = element("div", undefined, "tile", title);
  made.append(element("b", value ?? "–"), element("span", name));
  parent.append(made);
}
// Drawings: one unit is one pixel, so that text keeps its size on every screen.
const SVG = $("drawing").content.firstElementChild.namespaceURI;
function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  if (text !== undefined) made.textContent = text;
  return made;
}
function drawing(width, height, label) {
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
}
