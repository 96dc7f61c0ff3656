// Text of other people. Marks that change the direction of the text, and control characters, are
// shown by their numbers: otherwise a text could look like another one.
const MARKS =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

const nameOf = (mark: string): string =>
  `U+${(mark.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/** The text, unchanged for those who copy it. */
export function Exact({ text }: { text: string }) {
  const parts = [];
  let from = 0;
  for (const { 0: mark, index } of text.matchAll(MARKS)) {
    parts.push(text.slice(from, index));
    parts.push(<bdi class="mark" data-mark={nameOf(mark)}>{mark}</bdi>);
    from = index + mark.length;
  }
  parts.push(text.slice(from));
  return <bdi class="exact">{parts}</bdi>;
}
