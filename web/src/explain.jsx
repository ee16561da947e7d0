import { useGraphiQLActions } from '@graphiql/react';
import { useState, useSyncExternalStore } from 'react';

// This many similar calls are shown as one group, which can be opened.
const MANY = 4;

const NUMBER = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const number = (value) => NUMBER.format(value >= 100 ? Math.round(value) : value);
const count = (value, noun, plural = `${noun}s`) => `${number(value)} ${value === 1 ? noun : plural}`;
const sum = ({ read, write }) => read + write;

/** Return the sidebar pane that shows the calls of an operation to DynamoDB: in total, by field and by call. */
export function createExplainPlugin(explanations) {
  function Explain() {
    const { on, latest } = useSyncExternalStore(explanations.subscribe, explanations.get);
    const { run } = useGraphiQLActions();

    return (
      <section className="explain" aria-label="Explain">
        <header>
          <h2>Explain</h2>
          <label className="switch">
            <input
              type="checkbox"
              role="switch"
              checked={on}
              onChange={(event) => explanations.switchTo(event.target.checked)}
            />
            <span>Explain each run</span>
          </label>
        </header>
        {!on && !latest && (
          <Hint>
            Switch this on and run an operation to see its calls to DynamoDB. Each call is listed under its field, with
            its keys, the items read, the capacity consumed and the time taken.
          </Hint>
        )}
        {on && !latest && (
          <Hint>
            Run an operation to see its calls to DynamoDB.
            <button type="button" className="go" onClick={() => run()}>
              Run it now
            </button>
          </Hint>
        )}
        {latest && <Latest {...latest} stale={!on} />}
      </section>
    );
  }

  return { title: 'Explain', icon: ExplainIcon, content: Explain };
}

function Hint({ children }) {
  return <div className="hint">{children}</div>;
}

function Latest({ name, at, lacking, explanation, refusal, stale }) {
  if (refusal) {
    return (
      <div className="problem" role="alert">
        <strong>This caller is not allowed to explain operations.</strong>
        <p>{refusal}</p>
        <p>Nothing was executed. Choose another user under “Run as”, or switch Explain off.</p>
      </div>
    );
  }
  return (
    <>
      <p className="run" role="status">
        <code>{name}</code> <time dateTime={at.toISOString()}>{at.toLocaleTimeString()}</time>
        {stale && ' (later runs are not explained)'}
      </p>
      {/* Another run resets the chosen field and the opened calls. */}
      {explanation ? (
        <Explanation key={at.getTime()} {...explanation} whole={explanation} />
      ) : (
        <Hint>{lacking}</Hint>
      )}
    </>
  );
}

function Explanation({ whole, estimate, units, requests, retries, ms, calls, fields, omitted }) {
  const [chosen, choose] = useState(null);
  const shown = chosen === null ? calls : calls.filter(({ id }) => fields[chosen].calls.includes(id));

  return (
    <>
      <dl className="totals">
        <Total name="Requests" value={number(requests)} note={retries > 0 && count(retries, 'retry', 'retries')} />
        <Total name="Read units" value={number(units.read)} />
        <Total name="Write units" value={number(units.write)} />
        <Total name="Time" value={number(ms)} unit="ms" />
      </dl>
      {estimate > 0 && <Estimate estimate={estimate} actual={sum(units)} />}
      {fields.length > 0 && <Fields fields={fields} chosen={chosen} choose={choose} />}
      {calls.length > 0 ? (
        <Calls calls={shown} ms={ms} path={chosen === null ? null : pathOf(fields[chosen])} />
      ) : (
        <Hint>{fields.length ? 'No call was made: all results came from caches or from other requests.' : 'No call was made.'}</Hint>
      )}
      {omitted && (
        <p className="quiet">
          Not shown: {count(omitted.calls, 'call')} and {count(omitted.fields, 'field')}. The totals include them.
        </p>
      )}
      <CopyButton text={JSON.stringify(whole, null, 2)} />
    </>
  );
}

function Total({ name, value, unit, note }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value}
        {unit && <small> {unit}</small>}
        {note && <small className="warning"> {note}</small>}
      </dd>
    </div>
  );
}

function Estimate({ estimate, actual }) {
  const most = Math.max(estimate, actual);
  return (
    <div className="estimate">
      <Bar value={actual / most} mark={actual > estimate ? estimate / most : undefined} />
      <p className="quiet">
        {number(actual)} of {number(estimate)} estimated units ({number((actual / estimate) * 100)} %)
      </p>
    </div>
  );
}

function Fields({ fields, chosen, choose }) {
  const most = Math.max(...fields.map(({ units }) => sum(units)));
  return (
    <table>
      <caption>By field</caption>
      <thead>
        <tr>
          <th scope="col">Field</th>
          <th scope="col" title="Reads and writes that this field sent to DynamoDB">
            Sent
          </th>
          <th scope="col" title="Results that came from caches, or from calls of other fields or requests">
            Hits
          </th>
          <th scope="col">Units</th>
        </tr>
      </thead>
      <tbody>
        {fields.map((field, index) => (
          <tr key={field.path} data-chosen={index === chosen || undefined}>
            <th scope="row" style={{ '--depth': depthOf(field, fields) }}>
              <button
                type="button"
                title={`${pathOf(field)}: show its calls`}
                aria-pressed={index === chosen}
                onClick={() => choose(index === chosen ? null : index)}
              >
                {nameOf(field, fields)}
              </button>{' '}
              <small>{field.patterns.join(', ')}</small>
            </th>
            <td>{number(field.reads + field.writes)}</td>
            <td>{field.hits > 0 ? number(field.hits) : <span className="quiet">–</span>}</td>
            <td>
              {number(sum(field.units))}
              <Bar value={most ? sum(field.units) / most : 0} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const pathOf = ({ path }) => path ?? '(no field)';

/** Return the path of the nearest parent with calls of its own. The field is shown beneath it, with the rest of its path. */
function parentOf({ path }, fields) {
  const above = fields.filter((other) => path?.startsWith(`${other.path}.`)).map((other) => other.path);
  return above.reduce((longest, path) => (path.length > longest.length ? path : longest), '');
}

function depthOf({ path }, fields) {
  return fields.filter((other) => path?.startsWith(`${other.path}.`)).length;
}

function nameOf(field, fields) {
  const parent = parentOf(field, fields);
  return parent ? field.path.slice(parent.length + 1) : pathOf(field);
}

function Calls({ calls, ms, path }) {
  return (
    <section className="calls">
      <h3>
        {count(calls.length, 'call')}
        {path && (
          <>
            {' '}
            of <code>{path}</code>
          </>
        )}
        <small>
          {' '}
          The bars show when each call ran, within {number(ms)} ms.
        </small>
      </h3>
      <ol>
        {grouped(calls).map((group) => (
          <li key={group[0].id}>
            {group.length < MANY ? group.map((call) => <Call key={call.id} {...call} of={ms} />) : <Group calls={group} of={ms} />}
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Return the calls in their order. Many calls that differ only in their keys form a group. */
function grouped(calls) {
  const alike = ({ operation, tables, index, patterns, fields }) =>
    JSON.stringify([operation, tables, index, patterns, fields]);
  const groups = [...Map.groupBy(calls, alike).values()];
  const shown = groups.flatMap((group) => (group.length < MANY ? group.map((call) => [call]) : [group]));
  return shown.sort(([first], [second]) => first.id - second.id);
}

function Group({ calls, of }) {
  const begin = Math.min(...calls.map(({ at }) => at));
  const end = Math.max(...calls.map(({ at, ms }) => at + ms));
  const total = (valueOf) => calls.reduce((before, call) => before + valueOf(call), 0);
  const figures = {
    units: total(({ units }) => sum(units)),
    read: total(({ read }) => read ?? 0),
    returned: total(({ returned }) => returned ?? 0),
    written: calls[0].written === undefined ? undefined : total(({ written }) => written),
    retries: total(({ retries }) => retries),
    pages: 1,
    ms: end - begin,
  };
  return (
    <details className="group">
      <summary>
        <CallHead {...calls[0]} {...figures} times={calls.length} />
        <Bar from={begin / of} value={(end - begin) / of} writes={figures.written !== undefined} />
      </summary>
      {calls.map((call) => (
        <Call key={call.id} {...call} of={of} />
      ))}
    </details>
  );
}

function Call(call) {
  return (
    <details className="call">
      <summary>
        <CallHead {...call} units={sum(call.units)} />
        <Bar from={call.at / call.of} value={call.ms / call.of} writes={call.written !== undefined} />
      </summary>
      <dl>
        <Facts {...call} />
      </dl>
    </details>
  );
}

function CallHead(call) {
  const { operation, tables, index, units, ms, times, failed, retries } = call;
  return (
    <span className="head">
      <span className="name">
        {times && <b>{times} × </b>}
        <b>{operation}</b> <code>{[tables.join(' + '), index].filter(Boolean).join('.')}</code>
        {failed && <em className="warning"> failed</em>}
        {retries > 0 && <em className="warning"> {count(retries, 'retry', 'retries')}</em>}
      </span>
      <span className="figures">
        {itemsOf(call)} · {count(units, 'unit')} · {number(ms)} ms
      </span>
      {!times && <span className="about">{aboutOf(call)}</span>}
    </span>
  );
}

function itemsOf({ read, returned, written }) {
  if (written !== undefined) return `${number(written)} written`;
  return read === returned ? count(read, 'item') : `${number(returned)} of ${count(read, 'item')}`;
}

/** Return a line about a call: its condition, its key, or the number of its keys. */
function aboutOf({ condition, values, keys = [], omittedKeys = 0 }) {
  if (condition) return filledIn(condition, values);
  return keys.length === 1 ? keyText(keys[0]) : count(keys.length + omittedKeys, 'key');
}

const keyText = (key) => Object.values(key).map(String).join('  ·  ');

function Facts(call) {
  const { operation, patterns, fields, condition, filter, values, keys, omittedKeys = 0, pages, units } = call;
  return (
    <>
      {condition && <Fact name="Keys">{filledIn(condition, values)}</Fact>}
      {filter && <Fact name="Filter">{filledIn(filter, values)}</Fact>}
      {keys && (
        <Fact name={keys.length === 1 ? 'Key' : count(keys.length + omittedKeys, 'key')}>
          <ul>
            {keys.map((key, index) => (
              <li key={index}>{keyText(key)}</li>
            ))}
            {omittedKeys > 0 && <li className="quiet">and {number(omittedKeys)} more</li>}
          </ul>
        </Fact>
      )}
      <Fact name="Items">
        {call.written === undefined
          ? `${number(call.read)} read, ${number(call.returned)} returned`
          : `${number(call.written)} written`}
        {pages > 1 && ` in ${number(pages)} ${operation === 'BatchGetItem' ? 'rounds' : 'pages'}`}
      </Fact>
      <Fact name="Units">{`${number(units.read)} read, ${number(units.write)} write`}</Fact>
      <Fact name="Fields">
        {fields.map((path) => path ?? '(no field)').join(', ')} <small>{patterns.join(', ')}</small>
      </Fact>
    </>
  );
}

function Fact({ name, children }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Return the expression with its values in place of their names. */
function filledIn(expression, values = {}) {
  return expression
    .split(/(:\w+)/)
    .map((part, index) =>
      part.startsWith(':') && part.slice(1) in values ? <mark key={index}>{JSON.stringify(values[part.slice(1)])}</mark> : part,
    );
}

/** Show a bar that begins at `from` and has the length `value`, with a line at `mark`: fractions of the width. */
function Bar({ from = 0, value, mark, writes }) {
  const percent = (part) => `${Math.min(Math.max(part || 0, 0), 1) * 100}%`;
  return (
    <span className="bar" aria-hidden="true" data-writes={writes || undefined}>
      <i style={{ marginLeft: percent(from), width: percent(value) }} />
      {mark !== undefined && <s style={{ left: percent(mark) }} />}
    </span>
  );
}

function CopyButton({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  if (!navigator.clipboard) return null; // browsers offer no clipboard without HTTPS, except on localhost
  return (
    <button type="button" className="copy" onClick={copy}>
      {copied ? 'Copied' : 'Copy as JSON'}
    </button>
  );
}

function ExplainIcon(props) {
  return (
    <svg viewBox="0 0 24 24" height="1em" fill="none" stroke="currentColor" strokeWidth="1.5" {...props}>
      <path d="M3 4v16h18" />
      <path d="M7 8h6M10 12h8M8 16h5" strokeWidth="2.500" />
    </svg>
  );
}
