import { useEffect, useRef, useState } from "preact/hooks";
import { useToken, wasRefused } from "../state/token";
import { t } from "../text";

/** Asks for a token, after the service answered 401. */
export function TokenPrompt() {
  const [text, setText] = useState("");
  const [isKept, setKept] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const texts = t().token;
  useEffect(() => field.current?.focus(), []);
  const submit = (event: Event) => {
    event.preventDefault();
    if (text.trim() !== "") useToken(text.trim(), isKept);
  };
  return (
    <form class="form" onSubmit={submit}>
      <h1>{texts.title}</h1>
      {wasRefused.value && <p class="notice bad" role="alert">{texts.refused}</p>}
      <div class="labelled">
        <label for="token">{texts.label}</label>
        <input
          ref={field}
          id="token"
          type="password"
          autocomplete="off"
          spellcheck={false}
          value={text}
          aria-describedby="token-help"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <p id="token-help" class="quiet">{texts.help}</p>
      </div>
      <label>
        <input
          type="checkbox"
          checked={isKept}
          onChange={(event) => setKept(event.currentTarget.checked)}
        />{" "}
        {texts.remember}
      </label>
      <button type="submit" class="primary">{texts.use}</button>
    </form>
  );
}
