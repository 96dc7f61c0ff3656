import { may } from "../state/session";
import { href, route } from "../state/route";
import { t } from "../text";
import { Preferences } from "./preferences";
import { PAGES } from "./pages";

/** The pages that the token may see. */
export const Navigation = () => (
  <nav aria-label={t().navigation}>
    <ul>
      {PAGES.filter(({ mayOpen }) => mayOpen(may)).map(({ name, title }) => (
        <li>
          <a href={href(name)} {...(route.value.page === name && { "aria-current": "page" })}>
            {t().pages[title]}
          </a>
        </li>
      ))}
      <li>
        <a href="docs">{t().apiPage}</a>
      </li>
    </ul>
    <Preferences />
  </nav>
);
