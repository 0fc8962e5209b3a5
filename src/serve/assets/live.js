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

function link(address, port) {
  const host = address.includes(":") ? "[" + address + "]" : address;
  const link = document.createElement("a");
  link.href = "/hosts/" + encodeURIComponent(address);
  link.textContent = port > 0 ? host + ":" + port : address;
  const place = document.createElement("td");
  place.append(link);
  return place;
}

const shortened = (at) => at.replace("T", " ").replace(/\..*/, "");

// Adds an alert of the guard.
function told(alert) {
  const row = document.createElement("tr");
  row.className = "alert";
  put(row, "td", shortened(alert.at));
  put(row, "td", alert.blocked ? "blocked" : "alert");
  row.append(link(alert.address, alert.port));
  put(row, "td", alert.protocol);
  const what = document.createElement("td");
  what.className = "said";
  put(what, "span", alert.severity).className = "severity " + alert.severity;
  put(what, "span", alert.rule + ": " + alert.title);
  put(what, "ins", alert.banner);
  put(what, "span", (alert.side === "client" ? "to " : "from ") + alert.peer);
  row.append(what);
  put(row, "td", alert.sensor);
  return row;
}

function row(change) {
  const row = document.createElement("tr");
  put(row, "td", shortened(change.at));
  put(row, "td", change.kind.replaceAll("_", " ") + (change.why === null ? "" : " (" + change.why + ")"));
  row.append(link(change.address, change.port));
  put(row, "td", change.protocol);
  const what = document.createElement("td");
  what.className = "said";
  if (change.rule !== null) put(what, "span", change.rule);
  if (change.old !== null) put(what, "del", change.old);
  if (change.new !== null) put(what, "ins", change.new);
  row.append(what);
  put(row, "td", change.sensor);
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
