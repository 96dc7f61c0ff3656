import { useMemo } from "preact/hooks";

// Text of other people. Marks that change the direction of the text, and control characters, are
// shown by their numbers: otherwise a text could look like another one.
const MARKS = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u2069\\ufeff]+",
  "g",
);

/** So many marks in a row are named; of more, the number is shown. */
const NAMED = 8;

const nameOf = (mark: string): string =>
  `U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

function namesOf(marks: string): string {
  const names = [...marks.slice(0, NAMED)].map(nameOf).join(" ");
  return marks.length > NAMED ? `${names} … ×${marks.length}` : names;
}

function shown(text: string) {
  const parts = [];
  let from = 0;
  for (const { 0: marks, index } of text.matchAll(MARKS)) {
    parts.push(text.slice(from, index));
    parts.push(<bdi class="mark" data-mark={namesOf(marks)}>{marks}</bdi>);
    from = index + marks.length;
  }
  parts.push(text.slice(from));
  return <bdi class="exact">{parts}</bdi>;
}

/** The text, unchanged for those who copy it. */
export const Exact = ({ text }: { text: string }) => useMemo(() => shown(text), [text]);
