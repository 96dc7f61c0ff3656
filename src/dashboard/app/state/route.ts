// The page that the address names: `#/page/argument/…`. Each part is encoded.
import { signal } from "@preact/signals";

export interface Route {
  page: string;
  parts: string[];
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function parse(hash: string): Route {
  const [page = "", ...parts] = hash.replace(/^#?\/?/, "").split("/").map(decoded);
  return { page, parts };
}

export const route = signal(parse(location.hash));

addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

/** The address of a page. */
export const href = (page: string, ...parts: string[]): string =>
  `#/${[page, ...parts].map(encodeURIComponent).join("/")}`;

export const go = (page: string, ...parts: string[]): void => {
  location.hash = href(page, ...parts);
};
