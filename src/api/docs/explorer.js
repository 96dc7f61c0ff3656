// Renders /openapi.json. Text of the document or of an answer is never inserted as markup.
"use strict";

let api;
/** The groups of calls: the elements of each heading, and each call's text and elements. */
const groups = [];

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};

/** A paragraph; backticks mark names. */
const prose = (text) =>
  element(
    "p",
    {},
    ...text.split("`").map((part, n) => (n % 2 ? element("code", { textContent: part }) : part)),
  );

/** The schema that a reference names, overridden by the keys beside the reference. */
const resolved = (schema) => {
  if (!schema || !schema.$ref) return schema || {};
  const target = schema.$ref
    .slice(2)
    .split("/")
    .reduce((at, part) => at[part], api);
  return { ...resolved(target), ...schema, $ref: undefined };
};

const isNull = (schema) => resolved(schema).type === "null";
const alternatives = (schema) => (schema.anyOf || schema.oneOf || []).filter((one) => !isNull(one));
const isRequired = (schema, name) => (schema.required || []).includes(name);

/** Types that are shown by name instead of by their JSON type. */
const WORDS = {
  Span: "duration",
  UnixMillis: "Unix ms",
  TaskId: "task id",
  TaskIdGiven: "task id",
  Rate: "rate",
  Content: "object | text",
  Cursor: "cursor",
};

/** A short name of a schema's type. */
const kind = (given) => {
  const word = WORDS[given?.$ref?.split("/").pop()];
  if (word) return word;
  const schema = resolved(given);
  const several = alternatives(schema);
  if (several.length) return [...new Set(several.map(kind))].join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const types = [schema.type].flat().filter((type) => type && type !== "null");
  if (types.includes("array")) return `list of ${kind(schema.items)}`;
  return (types.join(" | ") || "any") + range(schema.minimum, schema.maximum);
};

const range = (from, to) => {
  if (from !== undefined && from === to) return ` ${from}`;
  if (from !== undefined && to !== undefined) return ` ${from}–${to}`;
  return from !== undefined ? ` ≥ ${from}` : to !== undefined ? ` ≤ ${to}` : "";
};

/** The description of a field, or else of its type. */
const meaning = (given) => {
  const schema = resolved(given);
  return (
    schema.description ||
    alternatives(schema)
      .map((one) => resolved(one).description)
      .find(Boolean) ||
    ""
  );
};

/** The properties of an object: identifiers, required ones, the rest, an answer's envelope. */
const ordered = (schema) => {
  const first = ["topic", "task_id", "sn", "kind"],
    last = ["error_msg", "dm_error"];
  const rank = ([name]) =>
    last.includes(name) ? 3 : isRequired(schema, name) ? (first.includes(name) ? 0 : 1) : 2;
  return Object.entries(schema.properties || {}).sort(
    (a, b) => rank(a) - rank(b) || first.indexOf(a[0]) - first.indexOf(b[0]),
  );
};

/** The object schemas of a value, or of a list's items. */
const objects = (given) => {
  const schema = resolved(given);
  const several = alternatives(schema);
  if (several.length) return several.flatMap(objects);
  if (schema.items) return objects(schema.items);
  return schema.properties ? [schema] : [];
};

const field = (schema, [name, given], depth) => {
  const inner =
    depth < 4
      ? objects(given).map((one) =>
          element("div", { className: "inner" }, ...fields(one, depth + 1)),
        )
      : [];
  const text = meaning(given);
  return element(
    "div",
    { className: "field" },
    element(
      "div",
      {},
      element("code", { textContent: name }),
      element("span", { className: "kind", textContent: kind(given) }),
      isRequired(schema, name)
        ? element("span", { className: "must", textContent: "required" })
        : null,
    ),
    text ? prose(text) : null,
    ...inner,
  );
};

const fields = (schema, depth = 0) => ordered(schema).map((entry) => field(schema, entry, depth));

/** The fields of a request. */
const takes = (given) => {
  const all = objects(given).flatMap((one) => fields(one));
  return all.length ? [element("h4", { textContent: "Body" }), ...all] : [];
};

const folded = (title, children) =>
  element(
    "details",
    { className: "more" },
    element("summary", { textContent: title }),
    ...children,
  );

/** The fields of a successful answer. */
const answers = (given) => {
  const several = objects(given);
  const part = (one, n) => [...(n ? [element("h4", { textContent: "Or" })] : []), ...fields(one)];
  return several.length ? folded("Answer", several.flatMap(part)) : null;
};

const statuses = (operation) =>
  folded(
    "Statuses",
    Object.entries(operation.responses).map(([status, given]) => {
      const text = (resolved(given).description || "").replace(`${status}, `, "");
      return element(
        "div",
        { className: "status" },
        element("b", { className: status < 300 ? "fine" : "", textContent: status }),
        element("span", { textContent: text }),
      );
    }),
  );

/** A sample request with the required fields. */
const sample = (given, name = "") => {
  const schema = resolved(given);
  const known = {
    topic: "order.cancel",
    confirm: "order.cancel",
    content: { sn: "message.call", url: "/orders/cancel" },
    sn: "message.call",
    step: "1h",
    lease: "30s",
  };
  if (name in known) return known[name];
  if (schema.enum) return schema.enum[0];
  const [first] = alternatives(schema);
  if (first) return sample(first, name);
  const type = [schema.type].flat().find((one) => one !== "null");
  if (type === "array") return [sample(schema.items)];
  if (type === "integer" || type === "number") return schema.minimum ?? 0;
  if (type === "string") return "";
  if (type === "boolean") return false;
  const made = Object.fromEntries(
    ordered(schema)
      .filter(([field]) => isRequired(schema, field))
      .map(([field, value]) => [field, sample(value, field)]),
  );
  if (schema.properties && schema.properties.delay && schema.properties.timing_moment)
    made.delay = "10s";
  if (schema.properties && schema.properties.all && schema.properties.dry_run)
    Object.assign(made, { all: true, dry_run: true });
  return made;
};

/**
 * JSON with line breaks and colours. Numbers keep their digits: parsing would change large ones.
 */
const printed = (text) => {
  const pieces = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g) || [];
  const shown = document.createDocumentFragment();
  let depth = 0;
  const line = () => shown.append(`\n${"  ".repeat(depth)}`);
  pieces.forEach((piece, n) => {
    const opens = "{[".includes(piece),
      closes = "}]".includes(piece),
      isEmpty = closes && "{[".includes(pieces[n - 1]);
    if (closes) depth -= 1;
    if (closes && !isEmpty) line();
    if ("{}[],:".includes(piece)) shown.append(piece === ":" ? ": " : piece);
    else
      shown.append(
        element("span", {
          className: piece[0] !== '"' ? "number" : pieces[n + 1] === ":" ? "key" : "string",
          textContent: piece,
        }),
      );
    if (opens) depth += 1;
    if ((opens && !"}]".includes(pieces[n + 1])) || piece === ",") line();
  });
  return shown;
};

const token = () => document.getElementById("token").value.trim();

const send = async (method, path, body, shown) => {
  const headers = {};
  if (token()) headers.authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const began = performance.now();
  try {
    const answer = await fetch(path, { method: method.toUpperCase(), headers, body });
    const text = await answer.text();
    const took = `${Math.round(performance.now() - began)} ms`;
    const id = element("span", {
      className: "id",
      title: "x-request-id",
      textContent: answer.headers.get("x-request-id"),
    });
    const isJson = (answer.headers.get("content-type") || "").startsWith("application/json");
    shown.className = answer.ok ? "answer good" : "answer";
    shown.replaceChildren(
      element(
        "div",
        { className: "bar" },
        element("span", {}, element("b", { textContent: answer.status }), ` ${took}`),
        id,
      ),
      element("pre", {}, isJson ? printed(text) : text),
    );
  } catch (error) {
    shown.className = "answer";
    shown.replaceChildren(element("pre", { textContent: `No answer: ${error.message}` }));
  }
};

/** The call as a command. Single quotes protect the body from the shell. */
const curl = (method, path, body) => {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const access = token() ? ` -H ${quoted(`authorization: Bearer ${token()}`)}` : "";
  const data = body === undefined ? "" : ` -H 'content-type: application/json' -d ${quoted(body)}`;
  return `curl -X ${method.toUpperCase()}${access}${data} ${quoted(location.origin + path)}`;
};

const trial = (method, path, schema, isPage) => {
  const shown = element("div", { className: "answer", hidden: true });
  const body = schema && JSON.stringify(sample(schema), null, 2);
  const text =
    schema &&
    element("textarea", {
      value: body,
      rows: body.split("\n").length,
      spellcheck: false,
      ariaLabel: `Body for ${path}`,
    });
  const asked = () => (text ? text.value : undefined);
  const go = element("button", { type: "button", className: "send", textContent: "Send" });
  go.addEventListener("click", async () => {
    go.disabled = true;
    await send(method, path, asked(), shown);
    [go.disabled, shown.hidden] = [false, false];
  });
  text?.addEventListener("keydown", (key) => {
    if (key.key === "Enter" && (key.ctrlKey || key.metaKey)) go.click();
  });
  const copy = element("button", { type: "button", textContent: "Copy curl" });
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(curl(method, path, asked()));
    copy.textContent = "Copied";
    setTimeout(() => {
      copy.textContent = "Copy curl";
    }, 1500);
  });
  // Browsers allow clipboard access only over https and on localhost.
  const buttons = isPage
    ? [element("a", { className: "button", href: path, textContent: "Open" })]
    : [navigator.clipboard ? copy : null, go];
  return element(
    "div",
    { className: "trial" },
    element(
      "div",
      { className: "bar" },
      element("span", { textContent: text ? "Try it" : "No body" }),
      element("span", { className: "buttons" }, ...buttons.filter(Boolean)),
    ),
    text || null,
    shown,
  );
};

const section = (method, path, operation) => {
  const request = operation.requestBody && operation.requestBody.content["application/json"].schema;
  const kinds = operation.responses["200"].content || {};
  return element(
    "section",
    { id: operation.operationId },
    element(
      "div",
      {},
      element("h3", { textContent: operation.summary }),
      element(
        "div",
        { className: "path" },
        element("span", { className: `method ${method}`, textContent: method.toUpperCase() }),
        path,
      ),
      ...(request ? takes(request) : []),
      answers(kinds["application/json"]?.schema),
      statuses(operation),
    ),
    trial(method, path, request, "text/html" in kinds),
  );
};

/** Highlights the visible call in the contents. */
const follow = (links) => {
  const watch = new IntersectionObserver(
    (seen) => {
      for (const one of seen.filter((one) => one.isIntersecting)) {
        links.forEach((link, id) => link.classList.toggle("here", id === one.target.id));
      }
    },
    { rootMargin: "-10% 0px -80% 0px" },
  );
  document.querySelectorAll("section").forEach((one) => watch.observe(one));
};

const render = () => {
  document.getElementById("version").textContent = api.info.version;
  document.getElementById("about").textContent = api.info.description;
  document.getElementById("base").textContent = location.origin;
  const calls = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  calls.sort((a, b) => a.operation["x-order"] - b.operation["x-order"]);
  const contents = document.getElementById("contents"),
    main = document.getElementById("calls"),
    links = new Map();
  main.replaceChildren();
  for (const { name, description } of api.tags) {
    const [title] = description.split(":");
    const group = {
      head: [
        element("h2", { textContent: title }),
        element("h2", { className: "group", textContent: title }),
      ],
      calls: [],
    };
    contents.append(group.head[0]);
    main.append(group.head[1]);
    for (const { path, method, operation } of calls.filter((call) =>
      call.operation.tags.includes(name),
    )) {
      const link = element("a", {
        href: `#${operation.operationId}`,
        textContent: path.replace(`/delay/${name}/`, ""),
        title: `${path}: ${operation.summary}`,
      });
      const shown = [link, section(method, path, operation)];
      links.set(operation.operationId, link);
      contents.append(shown[0]);
      main.append(shown[1]);
      group.calls.push({ text: searched(path, operation), shown });
    }
    groups.push(group);
  }
  follow(links);
};

/** On a small screen the contents collapse after a choice. */
const fold = () => {
  const menu = document.getElementById("menu"),
    wide = matchMedia("(min-width: 50.01rem)");
  const set = () => {
    menu.open = wide.matches;
  };
  wide.addEventListener("change", set);
  menu.addEventListener("click", (click) => {
    if (click.target.tagName === "A") set();
  });
  set();
};

/** The text that the search uses: path, summary, and names and descriptions of the fields. */
const searched = (path, operation) => {
  const request = operation.requestBody && operation.requestBody.content["application/json"].schema;
  const named = (given, depth) =>
    objects(given).flatMap((one) =>
      Object.entries(one.properties || {}).flatMap(([name, value]) => [
        name,
        meaning(value),
        ...(depth < 4 ? named(value, depth + 1) : []),
      ]),
    );
  return [path, operation.summary, operation.description || "", ...named(request, 0)]
    .join("\n")
    .toLowerCase();
};

/** Shows only calls whose text contains every word, and the headings of these calls. */
const find = () => {
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { head, calls } of groups) {
      for (const { text, shown } of calls)
        shown.forEach((one) => {
          one.hidden = !words.every((word) => text.includes(word));
        });
      head.forEach((one) => {
        one.hidden = calls.every(({ shown }) => shown[0].hidden);
      });
    }
  });
};

document.getElementById("access").addEventListener("submit", (submit) => submit.preventDefault());
fold();
find();
fetch("/openapi.json")
  .then((answer) => answer.json())
  .then((document_) => {
    api = document_;
    render();
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  })
  .catch((error) => {
    document.getElementById("calls").textContent = `/openapi.json cannot be read: ${error.message}`;
  });
