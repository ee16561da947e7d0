/** Whether the page is so narrow that an open pane covers it: as in style.css. */
export function paneCoversPage() {
  return matchMedia('(width < 800px)').matches;
}
