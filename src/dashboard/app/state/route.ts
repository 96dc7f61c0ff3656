// The page that the address names: `#/page/argument/…?name=value&…`. Each part is encoded.
import { signal } from "@preact/signals";

export type Query = Record<string, string>;

export interface Route {
  page: string;
  parts: string[];
  /** The filters of the page. */
  query: Query;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [page = "", ...parts] = path.split("/").map(decoded);
  return { page, parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

export const route = signal(parse(location.hash));

addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

/** The address of a page. */
export const href = (page: string, ...parts: string[]): string =>
  `#/${[page, ...parts].map(encodeURIComponent).join("/")}`;

/** The address of a page with filters; those that are empty are left out. */
export function hrefWith(query: Query, page: string, ...parts: string[]): string {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(given).toString();
  return href(page, ...parts) + (text === "" ? "" : `?${text}`);
}

export const go = (page: string, ...parts: string[]): void => {
  location.hash = href(page, ...parts);
};

/** Replaces the address, so that each key of a search is not a page to go back to. */
export const goInstead = (query: Query, page: string, ...parts: string[]): void => {
  location.replace(hrefWith(query, page, ...parts));
};

export const goWith = (query: Query, page: string, ...parts: string[]): void => {
  location.hash = hrefWith(query, page, ...parts);
};
