import { ask } from './ask.js';

const TYPES = { 'image/jpeg': 'JPEG', 'image/png': 'PNG', 'image/webp': 'WEBP' };
export const ACCEPTED = Object.keys(TYPES).join(',');

export const PHOTO = `
  imageId description tags takenAt width height originalUrl thumbnailUrl
  user { displayName }
  faces { faceId boundingBox { left top width height } person { name } }`;

const RESERVE = `mutation Reserve($input: CreatePhotoInput!) {
  createPhoto(input: $input) {
    imageId
    original { url method fields { name value } fileField maxBytes }
  }
}`;
const ENTER = 'mutation Enter($name: String!) { createPhotoUser(input: { displayName: $name }) { userId } }';
const CONFIRM = `mutation Confirm($imageId: ID!) { completePhoto(imageId: $imageId) { ${PHOTO} } }`;

/**
 * Uploads a picture: a place for it, the file itself, and the confirmation. Answers the photo; `tell` hears how far it
 * is: `{ words, part }`, the part (0 to 1) while that is known.
 */
export async function upload(file, description, { endpoint, authorization, tell, local }) {
  const contentType = TYPES[file.type];
  if (!contentType) throw new Error('only JPEG, PNG and WebP pictures can be uploaded.');
  if (!authorization) throw new Error('nobody is signed in. Choose under “Run as” whose photo it is.');
  const asked = (query, variables) => ask(endpoint, authorization, query, variables);

  tell({ words: `Reserving a place for ${file.name}…` });
  const input = { contentType, description: description.trim() || null };
  const { imageId, original } = (await entered(() => asked(RESERVE, { input }), asked)).createPhoto;
  if (file.size > original.maxBytes) {
    throw new Error(`it has ${megabytes(file.size)} MB; at most ${megabytes(original.maxBytes)} MB are taken.`);
  }
  const words = `Uploading ${file.name}…`;
  await send({ ...original, url: local(original.url) }, file, (part) => tell({ words, part }));
  tell({ words: `Looking at ${file.name}…` });
  return (await asked(CONFIRM, { imageId })).completePhoto;
}

/** Who uploads for the first time enters the library before. */
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

/** The form: its fields in their order, and then the file. */
function send({ url, method, fields, fileField }, file, progressed) {
  const form = new FormData();
  for (const { name, value } of fields) form.append(name, value);
  form.append(fileField, file);
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest(); // fetch does not tell how far an upload is
    request.upload.onprogress = ({ loaded, total }) => progressed(total ? loaded / total : undefined);
    request.onload = () => (request.status < 300 ? done() : failed(new Error(refusal(request))));
    request.onerror = () => failed(new Error('the upload broke off, or its address cannot be reached from here.'));
    request.open(method, url);
    request.send(form);
  });
}

/** What is said about a file that is not taken: in the gateway's JSON, or in the XML of S3. */
function refusal({ status, responseText }) {
  try {
    return JSON.parse(responseText).errors[0].message;
  } catch {
    const said = /<Message>([^<]+)/.exec(responseText)?.[1];
    return `The file was refused (${said ?? status}).`;
  }
}

function megabytes(bytes) {
  return Math.round((bytes / 1024 / 1024) * 10) / 10;
}
