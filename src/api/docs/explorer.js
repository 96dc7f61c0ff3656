// Renders /openapi.json. What comes from the document or from an answer becomes text, never markup.
"use strict";

let api;

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};

/** What a reference leads to; what stands beside the reference goes before. */
const resolved = (schema) => {
  if (!schema || !schema.$ref) return schema || {};
  const target = schema.$ref.slice(2).split("/").reduce((at, part) => at[part], api);
  return { ...resolved(target), ...schema, $ref: undefined };
};

const alternatives = (schema) => (schema.anyOf || schema.oneOf || []).map(resolved).filter((one) => one.type !== "null");

const isRequired = (schema, name) => (schema.required || []).includes(name);

/** A schema's type in a word or two. */
const kind = (given) => {
  const schema = resolved(given);
  const several = alternatives(schema);
  if (several.length) return [...new Set(several.map(kind))].join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const types = [schema.type].flat().filter((type) => type && type !== "null");
  if (types.includes("array")) return `list of ${kind(schema.items)}`;
  const from = schema.minimum, to = schema.maximum;
  const range = from === undefined && to === undefined ? "" : ` ${from ?? ""}–${to ?? ""}`;
  return (types.join(" | ") || "any") + range;
};

/** What a field means: what is said at the field, else of its type. */
const meaning = (given) => {
  const schema = resolved(given);
  if (schema.description) return schema.description;
  return alternatives(schema).map((one) => one.description).find(Boolean) || "";
};

/** Rows for the fields of a schema, those of its inner objects below them. */
const rows = (given, depth = 0) => {
  const schema = resolved(given);
  if (depth > 4) return [];
  const several = alternatives(schema);
  if (several.length) return several.flatMap((one) => rows(one, depth));
  if (schema.items) return rows(schema.items, depth);
  return Object.entries(schema.properties || {}).flatMap(([name, field]) => {
    const must = isRequired(schema, name);
    const cell = element("td", {}, element("code", { textContent: "· ".repeat(depth) + name }), element("span", { className: "must", textContent: must ? " *" : "" }));
    const row = element("tr", {}, cell, element("td", { className: "kind", textContent: kind(field) }), element("td", { textContent: meaning(field) }));
    return [row, ...rows(field, depth + 1)];
  });
};

const fields = (title, schema) => {
  const all = rows(schema);
  if (!all.length) return null;
  return element("div", {}, element("h4", { textContent: title }), element("table", {}, element("tbody", {}, ...all)));
};

/** Something to begin with: the required fields. */
const sample = (given, name = "") => {
  const schema = resolved(given);
  const known = { topic: "order.cancel", confirm: "order.cancel", content: { sn: "message.call", url: "/orders/cancel" }, sn: "message.call", step: "1h" };
  if (name in known) return known[name];
  if (schema.enum) return schema.enum[0];
  const [first] = alternatives(schema);
  if (first) return sample(first, name);
  const type = [schema.type].flat().find((one) => one !== "null");
  if (type === "array") return [sample(schema.items)];
  if (type === "integer" || type === "number") return schema.minimum ?? 0;
  if (type === "string") return "";
  if (type === "boolean") return false;
  const inner = Object.entries(schema.properties || {}).filter(([field]) => isRequired(schema, field));
  const made = Object.fromEntries(inner.map(([field, value]) => [field, sample(value, field)]));
  if (schema.properties && schema.properties.delay && schema.properties.timing_moment) made.delay = "10s";
  if (schema.properties && schema.properties.all && schema.properties.dry_run) Object.assign(made, { all: true, dry_run: true });
  return made;
};

const answers = (operation) => {
  const list = Object.entries(operation.responses).map(([status, given]) =>
    element("tr", {}, element("td", { textContent: status }), element("td", { textContent: resolved(given).description })));
  return element("details", {}, element("summary", { textContent: "Statuses" }), element("table", {}, element("tbody", {}, ...list)));
};

const send = async (method, path, body, shown) => {
  const headers = {};
  const token = document.getElementById("token").value.trim();
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  shown.className = "";
  shown.textContent = "…";
  try {
    const began = performance.now();
    const answer = await fetch(path, { method: method.toUpperCase(), headers, body });
    const text = await answer.text();
    const took = Math.round(performance.now() - began);
    shown.className = answer.ok ? "good" : "bad";
    // As it came: task ids and contents are not to be reformatted by a reader of numbers.
    shown.textContent = `${answer.status} in ${took} ms, x-request-id ${answer.headers.get("x-request-id")}\n\n${text}`;
  } catch (error) {
    shown.className = "bad";
    shown.textContent = `No answer: ${error.message}`;
  }
};

const trial = (method, path, schema) => {
  const shown = element("pre", { hidden: true });
  const text = schema && element("textarea", { value: JSON.stringify(sample(schema), null, 2), spellcheck: false, ariaLabel: `Body for ${path}` });
  const button = element("button", { type: "button", textContent: "Send" });
  button.addEventListener("click", () => {
    shown.hidden = false;
    send(method, path, text ? text.value : undefined, shown);
  });
  return element("details", {}, element("summary", { textContent: "Try it" }), text || null, element("div", {}, button), shown);
};

const section = (method, path, operation) => {
  const request = operation.requestBody && operation.requestBody.content["application/json"].schema;
  const content = (operation.responses["200"].content || {})["application/json"];
  return element("section", { id: operation.operationId },
    element("h3", {}, element("span", { className: "method", textContent: `${method.toUpperCase()} ` }), path),
    element("p", { textContent: operation.summary }),
    request ? fields("Takes (* is required)", request) : null,
    content && content.schema ? fields("Answers", content.schema) : null,
    answers(operation), trial(method, path, request));
};

const render = () => {
  document.getElementById("version").textContent = api.info.version;
  document.getElementById("about").textContent = api.info.description;
  const calls = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })));
  const contents = document.getElementById("contents");
  const main = document.getElementById("calls");
  main.replaceChildren();
  for (const { name, description } of api.tags) {
    contents.append(element("h2", { textContent: description }));
    for (const { path, method, operation } of calls.filter((call) => call.operation.tags.includes(name))) {
      contents.append(element("a", { href: `#${operation.operationId}`, textContent: path }));
      main.append(section(method, path, operation));
    }
  }
};

fetch("/openapi.json").then((answer) => answer.json()).then((document_) => {
  api = document_;
  render();
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}).catch((error) => {
  document.getElementById("calls").textContent = `/openapi.json cannot be read: ${error.message}`;
});
