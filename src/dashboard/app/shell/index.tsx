import { useEffect, useRef } from "preact/hooks";
import { lateFailure, notice } from "../state/notice";
import { route } from "../state/route";
import { may, who, whoError } from "../state/session";
import { needsToken } from "../state/token";
import { t } from "../text";
import { Dialog } from "../ui/dialog";
import { Exact } from "../ui/exact";
import { Failure } from "../ui/failure";
import { Header } from "./header";
import { Navigation } from "./navigation";
import { PAGES } from "./pages";
import { TokenPrompt } from "./token_prompt";

/** The header, the navigation and the page that the address names. */
export function Shell() {
  const main = useRef<HTMLElement>(null);
  const skip = (event: Event) => {
    event.preventDefault();
    main.current?.focus();
  };
  return (
    <>
      <Header skip={skip} />
      <Navigation />
      <main ref={main} tabIndex={-1}>
        <Content />
      </main>
      <Dialog />
    </>
  );
}

function Content() {
  if (needsToken.value) return <TokenPrompt />;
  if (who.value === null) {
    return whoError.value ? (
      <Failure error={whoError.value} />
    ) : (
      <p role="status" data-loading>{t().loading}</p>
    );
  }
  return <Current />;
}

function Current() {
  const { page: name, parts } = route.value;
  const page = PAGES.find((page) => page.name === name);
  const title = page ? (page.heading?.(parts) ?? t().pages[page.title]) : t().errors.notFound;
  const heading = useRef<HTMLHeadingElement>(null);
  const place = [name, ...parts].join("/");
  const shown = useRef(place);
  useEffect(() => {
    document.title = `${title} – delayd`;
  }, [title]);
  useEffect(() => {
    // Screen readers then read the new page.
    if (shown.current !== place) heading.current?.focus();
    shown.current = place;
  }, [place]);
  return (
    <>
      <h1 ref={heading} tabIndex={-1}>
        <Exact text={title} />
      </h1>
      <div role="status">
        {notice.value !== "" && (
          <p class="notice good">
            <Exact text={notice.value} />
          </p>
        )}
      </div>
      {lateFailure.value && (
        <>
          <p>
            <Exact text={lateFailure.value.action} />
          </p>
          <Failure error={lateFailure.value.error} isChange />
        </>
      )}
      {page && (page.mayOpen(may) ? page.show(parts) : <p>{t().errors[page.needs]}</p>)}
    </>
  );
}
