/** Return whether the page is so narrow that an open pane covers it. The limit is the one in style.css. */
export function paneCoversPage() {
  return matchMedia('(width < 800px)').matches;
}
