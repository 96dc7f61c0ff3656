// Fields of forms, with their help and what is wrong with them.
import type { ComponentChildren } from "preact";
import { Exact } from "./exact";

export interface Attributes {
  id: string;
  name: string;
  "aria-describedby": string;
  "aria-invalid": boolean;
}

interface LabelledProps {
  /** Unique in the page: the id of the field. */
  id: string;
  label: string;
  help: string;
  fault?: string | undefined;
  children: (attributes: Attributes) => ComponentChildren;
}

export function Labelled({ id, label, help, fault, children }: LabelledProps) {
  return (
    <div class="labelled">
      <label for={id}>{label}</label>
      {children({
        id,
        name: id,
        "aria-describedby": `${id}-help`,
        "aria-invalid": fault !== undefined,
      })}
      <p id={`${id}-help`} class={fault === undefined ? "quiet" : "fault"}>
        {fault === undefined ? help : <Exact text={fault} />}
      </p>
    </div>
  );
}

interface InputProps extends Omit<LabelledProps, "children"> {
  value: string;
  change: (value: string) => void;
  /** A date and a time. */
  isTime?: boolean;
}

export const Input = ({ value, change, isTime = false, ...labelled }: InputProps) => (
  <Labelled {...labelled}>
    {(attributes) => (
      <input
        {...attributes}
        {...(isTime ? { type: "datetime-local", step: 1 } : { type: "text" })}
        autocomplete="off"
        spellcheck={false}
        value={value}
        onInput={(event) => change(event.currentTarget.value)}
      />
    )}
  </Labelled>
);

interface ChoiceProps {
  /** The same for all choices of which one is taken. */
  name: string;
  isOn: boolean;
  choose: () => void;
  children: ComponentChildren;
}

export const Choice = ({ name, isOn, choose, children }: ChoiceProps) => (
  <label>
    <input type="radio" name={name} checked={isOn} onChange={choose} /> {children}
  </label>
);
