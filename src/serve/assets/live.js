// Adds changes to the table of the live page as they come. Everything is put in as text.
"use strict";

const table = document.querySelector("#live");
const state = document.querySelector("#state");
const most = 500;

// As the server shows text: control characters, and those that turn the direction of writing around.
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

function row(change) {
  const row = document.createElement("tr");
  put(row, "td", change.at.replace("T", " ").replace(/\..*/, ""));
  put(row, "td", change.kind.replaceAll("_", " ") + (change.why === null ? "" : " (" + change.why + ")"));
  const host = change.address.includes(":") ? "[" + change.address + "]" : change.address;
  const link = document.createElement("a");
  link.href = "/hosts/" + encodeURIComponent(change.address);
  link.textContent = change.port > 0 ? host + ":" + change.port : change.address;
  const place = document.createElement("td");
  place.append(link);
  row.append(place);
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
source.addEventListener("open", () => { state.textContent = "Changes appear here as they are seen."; });
source.addEventListener("error", () => { state.textContent = "The connection is lost; trying again."; });
source.addEventListener("change", (event) => {
  table.querySelector(".nothing")?.remove();
  table.prepend(row(JSON.parse(event.data)));
  while (table.rows.length > most) table.deleteRow(-1);
});
