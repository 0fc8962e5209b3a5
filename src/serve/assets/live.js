// Adds new changes to the table of the live page. All content is inserted as text.
"use strict";

const table = document.querySelector("#live");
const state = document.querySelector("#state");
const most = 500;

// Escapes like the server: control characters, and those that change the direction of text.
const unsafe = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;
const shown = (text) => text.replace(unsafe, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");

function put(parent, name, text) {
  const element = document.createElement(name);
  const inner = document.createElement("bdi");
  inner.textContent = shown(text);
  element.append(inner);
  parent.append(element, " ");
  return element;
}

// Adds a cell; narrow screens show its label.
function cell(row, label) {
  const cell = document.createElement("td");
  cell.dataset.label = label;
  row.append(cell);
  return cell;
}

// Adds a link to a path whose last part is from the network.
function link(parent, path, part, text) {
  const link = document.createElement("a");
  link.href = path + encodeURIComponent(part);
  link.textContent = shown(text);
  parent.append(link, " ");
}

// Starts a row: time, kind, service and protocol.
function begin(it, kind) {
  const row = document.createElement("tr");
  const time = document.createElement("time");
  time.dateTime = it.at;
  time.title = it.at;
  time.textContent = it.at.replace(/^.*T/, "").replace(/\..*/, "");
  cell(row, "When").append(time);
  put(cell(row, "Change"), "span", kind);
  const host = it.address.includes(":") ? "[" + it.address + "]" : it.address;
  link(cell(row, "Service"), "/hosts/", it.address, it.port > 0 ? host + ":" + it.port : it.address);
  put(cell(row, "Protocol"), "span", it.protocol);
  const what = cell(row, "Old and new");
  what.className = "said";
  put(cell(row, "Sensor"), "span", it.sensor);
  return [row, what];
}

// Returns the row of an alert of the guard.
function told(alert) {
  const [row, what] = begin(alert, alert.blocked ? "blocked" : "alert");
  row.className = "alert";
  put(what, "span", alert.severity).className = "severity " + alert.severity;
  link(what, "/rules/", alert.rule, alert.rule);
  put(what, "span", alert.title);
  put(what, "ins", alert.banner);
  put(what, "span", (alert.side === "client" ? "to " : "from ") + alert.peer);
  return row;
}

// Returns the row of a change.
function row(change) {
  const kind = change.kind.replaceAll("_", " ") + (change.why === null ? "" : " (" + change.why + ")");
  const [row, what] = begin(change, kind);
  if (change.rule !== null) link(what, "/rules/", change.rule, change.rule);
  if (change.old !== null) put(what, "del", change.old);
  if (change.new !== null) put(what, "ins", change.new);
  return row;
}

const question = new URLSearchParams({ q: table.dataset.q, after: table.dataset.after });
const source = new EventSource("/api/events?" + question);
source.addEventListener("open", () => { state.textContent = "This page shows new changes, and alerts if it is the page of a guard."; });
source.addEventListener("error", () => { state.textContent = "Connection lost; reconnecting."; });

function add(row) {
  table.querySelector(".nothing")?.remove();
  table.prepend(row);
  while (table.rows.length > most) table.deleteRow(-1);
}
source.addEventListener("change", (event) => add(row(JSON.parse(event.data))));
source.addEventListener("alert", (event) => add(told(JSON.parse(event.data))));
