import 'graphiql/setup-workers/vite';
import '@graphiql/react/font/roboto.css';
import '@graphiql/react/font/fira-code.css';
import '@graphiql/react/style.css';
import '@graphiql/plugin-doc-explorer/style.css';
import '@graphiql/plugin-history/style.css';
import 'graphiql/graphiql.css';
import './style.css';

import { pick, useGraphiQL } from '@graphiql/react';
import { GraphiQL, HISTORY_PLUGIN } from 'graphiql';
import { useEffect } from 'react';
import { createRoot } from 'react-dom/client';
import { createExamplesPlugin, tabOf } from './examples.jsx';
import { createExplainPlugin } from './explain.jsx';
import { createExplanations } from './explanations.js';
import { createFetcher } from './fetcher.js';
import { paneCoversPage } from './narrow.js';
import { createPhotosPlugin } from './photos.jsx';
import { headersFor, RoleSwitch } from './roles.jsx';
import { createStorage } from './storage.js';

const CONFIG_URL = `${import.meta.env.BASE_URL}config.json`;

async function loadConfig() {
  const response = await fetch(CONFIG_URL);
  if (!response.ok) throw new Error(`the server answered with status ${response.status}`);
  return response.json();
}

function startingTabs(examples, tokens) {
  const chosen = examples.filter(({ tab }) => tab);
  const firsts = [...Map.groupBy(examples, ({ group }) => group).values()].map(([first]) => first);
  return (chosen.length ? chosen : firsts).map((example) => tabOf(example, tokens));
}

/** Return the properties of the GraphiQL component. */
function propsOf(config) {
  const defaultHeaders = headersFor('user', config.tokens) || undefined;
  const storage = createStorage(defaultHeaders);
  const examples = createExamplesPlugin(config);
  const explanations = createExplanations();
  const props = {
    fetcher: createFetcher(config.endpoint, explanations),
    plugins: [examples, createExplainPlugin(explanations), createPhotosPlugin(config), HISTORY_PLUGIN],
    storage,
    defaultHeaders,
    shouldPersistHeaders: false,
    defaultEditorToolsVisibility: 'variables',
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

  return (
    <>
      {tokens.length > 0 && <RoleSwitch tokens={tokens} />}
      <span className="title">{title}</span>
    </>
  );
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
  root.render(
    <GraphiQL {...propsOf(config)}>
      <GraphiQL.Logo>
        <Header {...config} />
      </GraphiQL.Logo>
    </GraphiQL>,
  );
} catch (error) {
  root.render(<Failure reason={error.message} />);
}
