// The question that is open. The page shows no new figures until it is answered.
import { signal } from "@preact/signals";
import type { ComponentChild } from "preact";
import type { Refused } from "../ui/refused";

export interface Question {
  title: string;
  text: string;
  /** The text of the button that does it. */
  action: string;
  /** It deletes something. */
  isDangerous?: boolean;
  /** A name that must be typed before. */
  retype?: string;
  /** Fields, or a preview of what would happen. */
  more?: (refused: Refused | null) => ComponentChild;
  /** The fields of the request for which `more` shows a refusal, and the id of each input. */
  inputs?: () => Record<string, string>;
  /** Whether the fields and the preview allow it. */
  isReady?: () => boolean;
  /** How far an action of several calls has come; "" before the first answer. */
  progress?: () => string;
  /** Does it. The signal aborts when the dialog is closed; a call that runs is not cut off. */
  run: (closed: AbortSignal) => Promise<unknown>;
}

/** A question that was asked. The number differs each time, also for the same question. */
export type Asked = Question & { readonly id: number };

export const dialog = signal<Asked | null>(null);

let asked = 0;

export const ask = (question: Question): void => {
  dialog.value = { ...question, id: ++asked };
};

/** Closes this question. A newer one, asked while this one closed, stays. */
export const end = ({ id }: Asked): void => {
  if (dialog.peek()?.id === id) dialog.value = null;
};
