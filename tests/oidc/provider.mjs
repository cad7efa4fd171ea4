// The OpenID provider of the tests: client credentials only, on loopback. Its keys are new at every start, so
// that starting it again on its port is a rotation. It ends when its standard input does.
//
//   node provider.mjs [PORT]        prints "listening PORT"
import { createServer } from 'node:http';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { Provider } from 'oidc-provider';

const key = (alg, type, options) => {
  const { privateKey } = generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: `${alg}-${randomBytes(6).toString('hex')}` };
};

const client = (client_id) => ({
  client_id,
  client_secret: `${client_id}-secret`,
  grant_types: ['client_credentials'],
  redirect_uris: [],
  response_types: [],
});

const keys = [
  key('RS256', 'rsa', { modulusLength: 2048 }),
  key('ES256', 'ec', { namedCurve: 'P-256' }),
  key('EdDSA', 'ed25519', {}),
];

// The resource that a client names decides what it gets: urn:gatepost:RS256, urn:gatepost:opaque, …
const resource = (_, name) => {
  const format = name.split(':').pop();
  return {
    scope: 'read write',
    audience: format === 'elsewhere' ? 'elsewhere' : 'gatepost',
    accessTokenTTL: 600,
    ...(format === 'opaque'
      ? { accessTokenFormat: 'opaque' }
      : { accessTokenFormat: 'jwt', jwt: { sign: { alg: format === 'elsewhere' ? 'ES256' : format } } }),
  };
};

const server = createServer();
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => {
  const { port } = server.address();
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [client('app-1'), client('gateway')],
    jwks: { keys },
    scopes: ['read', 'write'],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      introspection: { enabled: true, allowedPolicy: () => true },
      revocation: { enabled: true },
      resourceIndicators: { enabled: true, defaultResource: () => 'urn:gatepost:ES256', getResourceServerInfo: resource },
    },
  });
  server.on('request', provider.callback());
  console.log(`listening ${port}`);
});

process.stdin.on('end', () => process.exit(0)).resume();
