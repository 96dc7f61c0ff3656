import { useEffect, useState } from "preact/hooks";
import { may } from "../state/session";
import { href, route } from "../state/route";
import { t } from "../text";
import { Preferences } from "./preferences";
import { PAGES, type Page } from "./pages";

/** The pages that the token may see. On a narrow screen, a button unfolds them. */
export function Navigation() {
  const [isOpen, setOpen] = useState(false);
  const { page, parts } = route.value;
  useEffect(() => setOpen(false), [page, ...parts]);
  const isShown = ({ mayOpen, isHidden }: Page) => mayOpen(may) && !isHidden?.(may);
  return (
    <nav aria-label={t().navigation} class={isOpen ? "open" : ""}>
      <button
        type="button"
        class="menu"
        aria-expanded={isOpen}
        aria-controls="pages"
        onClick={() => setOpen(!isOpen)}
      >
        {t().menu}
      </button>
      <div id="pages">
        <ul>
          {PAGES.filter(isShown).map(({ name, title }) => (
            <li>
              <a href={href(name)} {...(page === name && { "aria-current": "page" })}>
                {t().pages[title]}
              </a>
            </li>
          ))}
          <li>
            <a href="docs">{t().apiPage}</a>
          </li>
        </ul>
        <Preferences />
      </div>
    </nav>
  );
}
