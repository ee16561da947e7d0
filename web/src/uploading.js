import { ask } from './ask.js';

// The first bytes of a file decide its type, because its name may be wrong.
const TYPES = { 'image/jpeg': /^\xff\xd8\xff/, 'image/png': /^\x89PNG/, 'image/webp': /^RIFF.{4}WEBP/s };
const MOST_BYTES = 25 * 1024 * 1024;
export const ACCEPTED = Object.keys(TYPES).join(',');

export const PHOTO = `
  imageId description tags takenAt width height originalUrl thumbnailUrl
  user { displayName }
  faces { faceId boundingBox { left top width height } person { name } }`;

const RESERVE = `mutation Reserve($input: CreatePhotoInput!) {
  createPhoto(input: $input) {
    imageId
    original { url method fields { name value } fileField contentType maxBytes }
  }
}`;
const ENTER = 'mutation Enter($name: String!) { createPhotoUser(input: { displayName: $name }) { userId } }';
const CONFIRM = `mutation Confirm($imageId: ID!) { completePhoto(id: $imageId) { ${PHOTO} } }`;

const GIVE_UP = 'mutation GiveUp($imageId: ID!) { cancelPhotoUpload(id: $imageId) }';

// Reservations of failed uploads that could not be cancelled. The next equal upload uses them instead of a new one.
const spare = new Map();

/**
 * Upload a picture: reserve a place, send the file, and confirm it. Return the photo. `tell` receives the progress as
 * `{ words, part }`, with a part from 0 to 1 while it is known.
 */
export async function upload(file, description, { endpoint, authorization, tell, local }) {
  const contentType = await typeOf(file);
  if (file.size > MOST_BYTES) throw tooLarge(file, MOST_BYTES);
  if (!authorization) throw new Error('no user is selected. Choose the owner of the photo under “Run as”.');
  const asked = (query, variables) => ask(endpoint, authorization, query, variables);

  tell({ words: `Preparing the upload of ${file.name}…` });
  const input = { contentType, description: description.trim() || null };
  const kind = JSON.stringify([authorization, input]);
  const { imageId, original } = await place(input, spare.get(kind), asked);
  spare.set(kind, imageId);
  try {
    if (file.size > original.maxBytes) throw tooLarge(file, original.maxBytes);
    const words = `Uploading ${file.name}…`;
    await send({ ...original, url: local(original.url) }, file, (part) => tell({ words, part }));
    tell({ words: `Checking ${file.name}…` });
    const { completePhoto } = await asked(CONFIRM, { imageId });
    spare.delete(kind);
    return completePhoto;
  } catch (error) {
    await asked(GIVE_UP, { imageId }).then(() => spare.delete(kind), () => {});
    throw error;
  }
}

async function typeOf(file) {
  let beginning;
  try {
    beginning = String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
  } catch {
    throw new Error('the file cannot be read.');
  }
  const found = Object.keys(TYPES).find((type) => TYPES[type].test(beginning));
  if (!found) throw new Error('not a JPEG, PNG or WebP picture.');
  return found;
}

function tooLarge({ size }, most) {
  return new Error(`the file has ${megabytes(size)} MB; at most ${megabytes(most)} MB are accepted.`);
}

/** Reserve a place for a photo: the spare reservation, unless a photo uses it already. */
async function place(input, imageId, asked) {
  const reserve = (chosen) => entered(() => asked(RESERVE, { input: chosen }), asked);
  try {
    return (await reserve(imageId ? { ...input, imageId } : input)).createPhoto;
  } catch (error) {
    if (!imageId || !['CONFLICT', 'BAD_USER_INPUT'].includes(error.code)) throw error;
    return (await reserve(input)).createPhoto;
  }
}

/** Reserve, and create the user of the library before the first upload. */
async function entered(reserve, asked) {
  try {
    return await reserve();
  } catch (error) {
    if (error.code !== 'NOT_FOUND') throw error;
    const { me } = await asked('{ me { userId } }');
    await asked(ENTER, { name: me.userId });
    return reserve();
  }
}

/** Send the form: its fields in their order, followed by the file. */
function send({ url, method, fields, fileField, contentType }, file, progressed) {
  const form = new FormData();
  for (const { name, value } of fields) form.append(name, value);
  form.append(fileField, file.slice(0, file.size, contentType), file.name);
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest(); // fetch does not report the progress of an upload
    request.upload.onprogress = ({ loaded, total }) => progressed(total ? loaded / total : undefined);
    request.onload = () => (request.status < 300 ? done() : failed(new Error(refusal(request))));
    request.onerror = () => failed(new Error('the upload was interrupted, or its address cannot be reached from this browser.'));
    request.open(method, url);
    request.send(form);
  });
}

/** Return the message about a refused file, from the JSON of the gateway or the XML of S3. */
function refusal({ status, responseText }) {
  try {
    return JSON.parse(responseText).errors[0].message;
  } catch {
    const said = /<Message>([^<]+)/.exec(responseText)?.[1];
    return `The file was refused (${said ?? status}).`;
  }
}

/** Return megabytes with one decimal, rounded up, so that a file beyond the limit never appears to be within it. */
function megabytes(bytes) {
  return Math.ceil((bytes / 1024 / 1024) * 10) / 10;
}
