import { useHeadersEditorState } from '@graphiql/react';
import { useCallback, useEffect, useRef, useState } from 'react';
import { ask } from './ask.js';
import { authorizationIn } from './roles.jsx';
import { ACCEPTED, PHOTO, upload } from './uploading.js';

const PAGE = 12;
const NEWEST = `query Newest($first: Int!, $after: String) {
  photos(first: $first, after: $after) { nodes { ${PHOTO} } pageInfo { hasNextPage endCursor } }
}`;
const ONE = `query One($imageId: ID!, $takenAt: DateTime!) { photo(id: $imageId, takenAt: $takenAt) { ${PHOTO} } }`;
// The signed addresses of files are valid for at least three quarters of an hour.
const GOOD_MS = 40 * 60_000;
const MOST_NAMED = 5;
const LIST = new Intl.ListFormat('en');
const DAY = new Intl.DateTimeFormat('en', { day: 'numeric', month: 'short', year: 'numeric' });

/** Return the sidebar pane that uploads pictures and shows the photos of the library. */
export function createPhotosPlugin({ endpoint, url }) {
  // Addresses of the gateway become relative: the page may have been opened under another host name.
  const local = (address) => (url && address?.startsWith(`${url}/`) ? address.slice(url.length) : address);

  function Photos() {
    const [photos, setPhotos] = useState([]);
    const added = useCallback(
      (photo) => setPhotos((there) => [photo, ...there.filter(({ imageId }) => imageId !== photo.imageId)]),
      [],
    );
    return (
      <section className="photos" aria-label="Photos">
        <h2>Photos</h2>
        <Upload endpoint={endpoint} local={local} added={added} />
        <Gallery endpoint={endpoint} local={local} photos={photos} setPhotos={setPhotos} />
      </section>
    );
  }

  return { title: 'Photos', icon: PhotosIcon, content: Photos };
}

function Upload({ endpoint, local, added }) {
  const [headers] = useHeadersEditorState();
  const [description, setDescription] = useState('');
  const [progress, setProgress] = useState(null);
  const [results, setResults] = useState([]); // { name, problem }, in the order of the files
  const [hovered, setHovered] = useState(false);
  const waiting = useRef([]);
  const working = useRef(false);

  /** Upload the files one after another. Files that are added in the meantime are queued. */
  async function take(files) {
    const authorization = authorizationIn(headers);
    waiting.current.push(...files.map((file) => ({ file, description, authorization })));
    if (working.current || !files.length) return;
    working.current = true;
    const seen = [];
    setResults([]);
    for (let next = waiting.current.shift(); next; next = waiting.current.shift()) {
      seen.push({ name: next.file.name, problem: await problemOf(next, seen.length + 1) });
      setResults([...seen]);
    }
    working.current = false;
    setProgress(null);
    // Keep the description if a file failed, for another attempt, and if the user has changed it in the meantime.
    if (!seen.some(({ problem }) => problem)) setDescription((now) => (now === description ? '' : now));
  }

  /** Upload one file. Return the error message, or '' on success. */
  async function problemOf({ file, description, authorization }, number) {
    const many = number + waiting.current.length;
    const tell = ({ words, part }) => setProgress({ words: many > 1 ? `${words} (${number} of ${many})` : words, part });
    try {
      added(await upload(file, description, { endpoint, authorization, local, tell }));
      return '';
    } catch (error) {
      return error.message;
    }
  }

  return (
    <div className="upload">
      <label
        className="drop"
        data-hovered={hovered || undefined}
        onDragOver={(event) => {
          event.preventDefault();
          setHovered(true);
        }}
        onDragLeave={() => setHovered(false)}
        onDrop={(event) => {
          event.preventDefault();
          setHovered(false);
          take([...event.dataTransfer.files]);
        }}
      >
        <UploadIcon />
        <span>
          <strong>Choose pictures</strong> or drop them here
        </span>
        <small>JPEG, PNG or WebP</small>
        <input
          type="file"
          accept={ACCEPTED}
          multiple
          aria-label="Choose pictures to upload"
          onChange={({ target }) => {
            const files = [...target.files];
            target.value = ''; // allows choosing the same file again
            take(files);
          }}
        />
      </label>
      <input
        type="text"
        aria-label="Description of the pictures"
        placeholder="Description (optional)"
        maxLength={1000}
        value={description}
        onChange={(event) => setDescription(event.target.value)}
      />
      <div role="status">
        {progress && (
          <>
            <span>{progress.words}</span>
            <progress aria-label={progress.words} value={progress.part} />
          </>
        )}
        <Done names={results.filter(({ problem }) => !problem).map(({ name }) => name)} />
      </div>
      <Problems of={results.filter(({ problem }) => problem)} />
    </div>
  );
}

function Done({ names }) {
  if (!names.length) return null;
  return <p>{`${listed(names, 'pictures')} ${names.length > 1 ? 'are' : 'is'} in the library.`}</p>;
}

/** Return the names, or their number if there are many. */
function listed(names, kind) {
  return names.length > MOST_NAMED ? `${names.length} ${kind}` : LIST.format(names);
}

/** Show the problems, each once with the names of its files. */
function Problems({ of }) {
  return (
    <div role="alert">
      {[...Map.groupBy(of, ({ problem }) => problem)].map(([problem, files]) => (
        <p key={problem} className="problem">
          {`${listed(files.map(({ name }) => name), 'files')}: ${problem}`}
        </p>
      ))}
    </div>
  );
}

function Gallery({ endpoint, local, photos, setPhotos }) {
  const [next, setNext] = useState(null);
  const [loading, setLoading] = useState(true);
  const [problem, setProblem] = useState('');
  const began = useRef(false);

  const load = useCallback(
    async (after) => {
      setLoading(true);
      setProblem('');
      try {
        const page = (await ask(endpoint, '', NEWEST, { first: PAGE, after })).photos;
        setPhotos((there) => {
          const known = new Set(there.map(({ imageId }) => imageId));
          return [...there, ...page.nodes.filter((photo) => photo && !known.has(photo.imageId))];
        });
        setNext(page.pageInfo.hasNextPage ? page.pageInfo.endCursor : null);
      } catch (error) {
        setProblem(error.message);
        setNext((there) => after ?? there);
      } finally {
        setLoading(false);
      }
    },
    [endpoint, setPhotos],
  );

  useEffect(() => {
    if (!began.current) load(null);
    began.current = true;
  }, [load]);

  return (
    <>
      <ul className="gallery" aria-label="The newest photos" aria-busy={loading}>
        {photos.map((photo) => (
          <Photo key={photo.imageId} endpoint={endpoint} local={local} read={photo} />
        ))}
      </ul>
      <Problem words={problem} />
      {!loading && !problem && !photos.length && <p className="quiet">There are no photos yet.</p>}
      {loading && <p className="quiet">Loading photos…</p>}
      {!loading && (next || problem) && (
        <button type="button" className="more" onClick={() => load(next)}>
          {problem ? 'Try again' : 'Load more'}
        </button>
      )}
    </>
  );
}

function Photo({ endpoint, local, read }) {
  const { photo, broken, failed, renewIfOld } = useRenewed(read, endpoint);
  const { description, takenAt, width, height, originalUrl, thumbnailUrl, user, faces } = photo;
  const seen = faces.filter((face) => face?.person);
  const names = [...new Set(seen.map(({ person }) => person.name))];
  const words = description ?? 'A photo without a description';
  return (
    <li>
      <a href={local(originalUrl)} target="_blank" rel="noreferrer" onPointerEnter={renewIfOld} onFocus={renewIfOld}>
        <span className="frame" style={{ '--ratio': (width ?? 3) / (height ?? 2) }}>
          {thumbnailUrl && !broken && (
            <img src={local(thumbnailUrl)} alt={words} loading="lazy" decoding="async" onError={failed} />
          )}
          {!broken && seen.map((face) => <Face key={face.faceId} {...face} />)}
        </span>
        {(broken || !thumbnailUrl) && <span className="missing">{missing(photo)}</span>}
      </a>
      <p>{words}</p>
      <p className="quiet">
        {[names.length && names.join(', '), user?.displayName && `by ${user.displayName}`, DAY.format(new Date(takenAt))]
          .filter(Boolean)
          .join(' · ')}
      </p>
    </li>
  );
}

/** Return the text in place of a missing thumbnail. */
function missing({ gone, originalUrl }) {
  if (gone) return 'The photo was deleted.';
  return originalUrl ? 'Open the picture' : 'The picture cannot be shown.';
}

/**
 * Return a photo that is read again when its addresses are old or its thumbnail cannot be loaded. `broken`: reading
 * it again did not help.
 */
function useRenewed(read, endpoint) {
  const [photo, setPhoto] = useState(read);
  const [broken, setBroken] = useState(false);
  const readAt = useRef(Date.now());
  const tried = useRef(false);

  async function renew() {
    readAt.current = Date.now();
    const { imageId, takenAt } = photo;
    const now = (await ask(endpoint, '', ONE, { imageId, takenAt })).photo;
    const found = now ?? { ...photo, gone: true, originalUrl: null, thumbnailUrl: null };
    setPhoto(found);
    return found.thumbnailUrl !== photo.thumbnailUrl;
  }

  async function failed() {
    const again = tried.current;
    tried.current = true;
    setBroken(again || !(await renew().catch(() => false)));
  }

  async function renewIfOld() {
    if (Date.now() - readAt.current < GOOD_MS) return;
    tried.current = false;
    await renew().then(() => setBroken(false), () => {});
  }

  return { photo, broken, failed, renewIfOld };
}

/** Show a face while the pointer is on the picture. The caption below contains the names as well. */
function Face({ boundingBox, person }) {
  const sides = Object.entries(boundingBox).map(([side, part]) => [side, `${part * 100}%`]);
  return (
    <span className="face" style={Object.fromEntries(sides)} aria-hidden="true">
      <span>{person.name}</span>
    </span>
  );
}

function Problem({ words }) {
  return <div role="alert">{words && <p className="problem">{words}</p>}</div>;
}

function UploadIcon() {
  return (
    <svg viewBox="0 0 24 24" height="1.75em" fill="none" stroke="currentColor" strokeWidth="1.5" aria-hidden="true">
      <path d="M12 15.500V4.500M7.500 8.500l4.500-4.500 4.500 4.500M3.500 15v4.500h17V15" />
    </svg>
  );
}

function PhotosIcon(props) {
  return (
    <svg viewBox="0 0 24 24" height="1em" fill="none" stroke="currentColor" strokeWidth="1.5" {...props}>
      <rect x="2.750" y="4.500" width="18.500" height="15" rx="2" />
      <circle cx="8.250" cy="9.750" r="1.750" />
      <path d="m3.500 18 5.500-5 3.500 3 4-4.500 4.500 4.500" />
    </svg>
  );
}
