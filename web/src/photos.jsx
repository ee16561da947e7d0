import { useHeadersEditorState } from '@graphiql/react';
import { useCallback, useEffect, useRef, useState } from 'react';
import { ask } from './ask.js';
import { authorizationIn } from './roles.jsx';
import { ACCEPTED, PHOTO, upload } from './uploading.js';

const PAGE = 12;
const NEWEST = `query Newest($first: Int!, $after: String) {
  photos(first: $first, after: $after) { nodes { ${PHOTO} } pageInfo { hasNextPage endCursor } }
}`;
const DAY = new Intl.DateTimeFormat('en', { day: 'numeric', month: 'short', year: 'numeric' });

/** The sidebar pane which uploads pictures, and shows those that are in the library. */
export function createPhotosPlugin({ endpoint, url }) {
  // The gateway's own addresses are this page's, by whatever name it was opened.
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
  const [done, setDone] = useState('');
  const [problem, setProblem] = useState('');
  const [hovered, setHovered] = useState(false);

  async function take(files) {
    if (progress || !files.length) return;
    setProblem('');
    setDone('');
    const authorization = authorizationIn(headers);
    for (const file of files) {
      try {
        added(await upload(file, description, { endpoint, authorization, local, tell: setProgress }));
        setDone(`${file.name} is in the library.`);
        setDescription('');
      } catch (error) {
        setProblem(`${file.name}: ${error.message}`);
        break;
      } finally {
        setProgress(null);
      }
    }
  }

  return (
    <div className="upload">
      <label
        className="drop"
        data-hovered={hovered || undefined}
        data-busy={Boolean(progress) || undefined}
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
          disabled={Boolean(progress)}
          onChange={({ target }) => {
            const files = [...target.files];
            target.value = ''; // so that the same file can be chosen again
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
        disabled={Boolean(progress)}
        onChange={(event) => setDescription(event.target.value)}
      />
      <div role="status">
        {progress && (
          <>
            <span>{progress.words}</span>
            <progress aria-label={progress.words} value={progress.part} />
          </>
        )}
        {!progress && done}
      </div>
      <Problem words={problem} />
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
          <Photo key={photo.imageId} {...photo} local={local} />
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

function Photo({ description, takenAt, width, height, originalUrl, thumbnailUrl, user, faces, local }) {
  const [broken, setBroken] = useState(false);
  const seen = faces.filter((face) => face?.person);
  const names = [...new Set(seen.map(({ person }) => person.name))];
  const words = description ?? 'A photo without words';
  return (
    <li>
      <a href={local(originalUrl)} target="_blank" rel="noreferrer" style={{ aspectRatio: `${width ?? 3} / ${height ?? 2}` }}>
        {thumbnailUrl && !broken ? (
          <img src={local(thumbnailUrl)} alt={words} loading="lazy" decoding="async" onError={() => setBroken(true)} />
        ) : (
          <span className="missing">Open the picture</span>
        )}
        {!broken && seen.map((face) => <Face key={face.faceId} {...face} />)}
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

/** Seen while one points at the picture; its names are in the words below, too. */
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
