import { useState } from "preact/hooks";
import { go } from "../../state/route";
import { t } from "../../text";

interface Props {
  topic: string;
  id: string;
}

/** A form that names a task. */
export function Find({ topic, id }: Props) {
  const [wanted, setWanted] = useState({ topic, id });
  const [isTried, setTried] = useState(false);
  const texts = t().task;
  const isGood = /^\d+$/.test(wanted.id.trim());
  const submit = (event: Event) => {
    event.preventDefault();
    setTried(true);
    if (isGood && wanted.topic !== "") go("task", wanted.topic.trim(), wanted.id.trim());
  };
  return (
    <form class="find" onSubmit={submit} noValidate>
      <label>
        {texts.topic}
        <input
          autocomplete="off"
          spellcheck={false}
          required
          value={wanted.topic}
          onInput={(event) => setWanted({ ...wanted, topic: event.currentTarget.value })}
        />
      </label>
      <label>
        {texts.id}
        <input
          autocomplete="off"
          inputMode="numeric"
          required
          value={wanted.id}
          aria-invalid={isTried && !isGood}
          onInput={(event) => setWanted({ ...wanted, id: event.currentTarget.value })}
        />
      </label>
      <button type="submit">{texts.find}</button>
      {isTried && !isGood && <p class="fault" role="alert">{texts.badId}</p>}
    </form>
  );
}
