// The question that is open. The page shows no new figures until it is answered.
import { signal } from "@preact/signals";

export interface Question {
  title: string;
  text: string;
  /** The text of the button that does it. */
  action: string;
  run: () => Promise<unknown>;
}

export const dialog = signal<Question | null>(null);

export const ask = (question: Question): void => {
  dialog.value = question;
};
