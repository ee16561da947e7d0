import 'graphiql/setup-workers/vite';
import '@graphiql/react/font/roboto.css';
import '@graphiql/react/font/fira-code.css';
import '@graphiql/react/style.css';
import '@graphiql/plugin-doc-explorer/style.css';
import '@graphiql/plugin-history/style.css';
import 'graphiql/graphiql.css';
import './style.css';

import { pick, useGraphiQL, useGraphiQLActions } from '@graphiql/react';
import { GraphiQL, HISTORY_PLUGIN } from 'graphiql';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { Ending } from './ending.jsx';
import { createEndings } from './endings.js';
import { createExamplesPlugin, tabOf } from './examples.jsx';
import { createExplainPlugin } from './explain.jsx';
import { createExplanations } from './explanations.js';
import { createFetcher } from './fetcher.js';
import { paneCoversPage, useEscape } from './narrow.js';
import { createPhotosPlugin } from './photos.jsx';
import { Pictures } from './pictures.jsx';
import { headersFor, RoleSwitch } from './roles.jsx';
import { SharedOperation, Sharing } from './sharing.jsx';
import { createStorage } from './storage.js';

const CONFIG_URL = `${import.meta.env.BASE_URL}config.json`;

async function load(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`the server answered with status ${response.status}`);
  return response.json();
}

async function loadConfig() {
  const config = await load(CONFIG_URL);
  return { ...config, examples: config.examples ? await load(config.examples) : [] };
}

function startingTabs(examples, tokens) {
  const chosen = examples.filter(({ tab }) => tab);
  const most = paneCoversPage() ? 1 : chosen.length;
  return (chosen.length ? chosen : examples).slice(0, most || 1).map((example) => tabOf(example, tokens));
}

/** Return the properties of the GraphiQL component. */
function propsOf(config, endings) {
  const defaultHeaders = headersFor('user', config.tokens) || undefined;
  const storage = createStorage(defaultHeaders);
  const examples = createExamplesPlugin(config);
  const explanations = createExplanations();
  const props = {
    fetcher: createFetcher(config, explanations, endings),
    plugins: [examples, createExplainPlugin(explanations), createPhotosPlugin(config), HISTORY_PLUGIN],
    storage,
    defaultHeaders,
    shouldPersistHeaders: false,
    // On a telephone the query needs the space.
    defaultEditorToolsVisibility: paneCoversPage() ? false : 'variables',
  };
  if (storage.getItem('graphiql:tabState') || !config.examples.length) return props;
  const defaultTabs = startingTabs(config.examples, config.tokens);
  // GraphiQL takes the first tab's query from defaultTabs, but not its variables and headers.
  const { variables: initialVariables, headers: initialHeaders } = defaultTabs[0];
  return { ...props, defaultTabs, initialVariables, initialHeaders, visiblePlugin: paneCoversPage() ? undefined : examples };
}

function Header({ title, tokens }) {
  const { activeTabIndex, tabs } = useGraphiQL(pick('activeTabIndex', 'tabs'));
  // GraphiQL opens a tab beyond the edge of the tab bar without scrolling to it.
  useEffect(() => {
    document.querySelector('[role=tab][aria-selected=true]')?.scrollIntoView();
  }, [activeTabIndex, tabs.length]);
  useEscape();
  useLandmarks();

  return (
    <>
      <TabList />
      {tokens.length > 0 && <RoleSwitch tokens={tokens} />}
      <h1 className="title">{title}</h1>
    </>
  );
}

/** A menu of all tabs, while the tab bar has no room for them. */
function TabList() {
  const { activeTabIndex, tabs } = useGraphiQL(pick('activeTabIndex', 'tabs'));
  const { changeTab } = useGraphiQLActions();
  const [overflows, setOverflows] = useState(false);
  useEffect(() => {
    const bar = document.querySelector('.graphiql-tabs');
    const look = () => setOverflows(bar.scrollWidth > bar.clientWidth + 1);
    const observer = new ResizeObserver(look);
    observer.observe(bar);
    look();
    return () => observer.disconnect();
  }, [tabs]);
  if (tabs.length < 2) return null;
  return (
    <select
      className="tab-list"
      data-needed={overflows || undefined}
      aria-label="All tabs"
      value={activeTabIndex}
      onChange={({ target }) => changeTab(Number(target.value))}
    >
      {tabs.map(({ id, title }, index) => (
        <option key={id} value={index}>
          {title}
        </option>
      ))}
    </select>
  );
}

/** Mark the parts of GraphiQL's page as landmarks, by which a screen reader moves. */
function useLandmarks() {
  useEffect(() => {
    const roles = { '.graphiql-sidebar': ['navigation', 'Panes and settings'], '.graphiql-sessions': ['main', 'Operations'] };
    for (const [part, [role, label]] of Object.entries(roles)) {
      const element = document.querySelector(part);
      element?.setAttribute('role', role);
      element?.setAttribute('aria-label', label);
    }
    const pane = document.querySelector('.graphiql-plugin');
    pane?.setAttribute('role', 'complementary');
    pane?.setAttribute('aria-label', 'Pane');
  }, []);
}

function Failure({ reason }) {
  return (
    <div className="notice" role="alert">
      <h1>GraphiQL could not start</h1>
      <p>
        Its settings at <code>{CONFIG_URL}</code> could not be loaded: {reason}.
      </p>
      <button type="button" onClick={() => location.reload()}>
        Try again
      </button>
    </div>
  );
}

const root = createRoot(document.getElementById('root'));
try {
  const config = await loadConfig();
  document.title = config.title;
  const endings = createEndings();
  root.render(
    <GraphiQL {...propsOf(config, endings)}>
      <GraphiQL.Logo>
        <Header {...config} />
        <SharedOperation {...config} />
      </GraphiQL.Logo>
      <GraphiQL.Toolbar>
        {({ prettify, merge, copy }) => (
          <>
            {prettify}
            {merge}
            {copy}
            <Sharing {...config} />
          </>
        )}
      </GraphiQL.Toolbar>
      <GraphiQL.Footer>
        <Pictures {...config} />
        <Ending endings={endings} />
      </GraphiQL.Footer>
    </GraphiQL>,
  );
} catch (error) {
  root.render(<Failure reason={error.message} />);
}
