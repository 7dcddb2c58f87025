// ldapjs: url name password base. Uses every operation and prints what came of it, a line of JSON each.
const ldap = require('ldapjs');
const [url, name, password, base] = process.argv.slice(2);
const say = (value) => console.log(JSON.stringify(value));
const client = ldap.createClient({ url });
const done = (start) => new Promise((resolve, reject) => {
  start((error, value) => (error ? reject(error) : resolve(value)));
});
const search = (options) => new Promise((resolve, reject) => {
  client.search(base, { scope: 'sub', ...options }, (error, answer) => {
    if (error) { reject(error); return; }
    const found = [];
    answer.on('searchEntry', (entry) => found.push(entry.pojo));
    answer.on('error', reject);
    answer.on('end', () => resolve(found));
  });
});

async function main() {
  await done((end) => client.bind(name, password, end));
  const dn = `cn=Two,${base}`;
  await done((end) => client.add(dn, { objectClass: 'person', cn: 'Two', sn: 'Twain' }, end));
  const found = await search({ filter: '(&(objectClass=person)(sn=Tw*n))', attributes: ['sn'] });
  say(found.map((entry) => [entry.objectName, entry.attributes[0].values]));
  const modification = new ldap.Attribute({ type: 'description', values: ['text'] });
  await done((end) => client.modify(dn, new ldap.Change({ operation: 'add', modification }), end));
  say(await done((end) => client.compare(dn, 'description', 'text', end)));
  say((await search({ filter: '(uid=*)', paged: { pageSize: 4 } })).length);
  await done((end) => client.modifyDN(dn, `cn=Three,${base}`, end));
  say(await done((end) => client.exop('1.3.6.1.4.1.4203.1.11.3', end)));
  await done((end) => client.del(`cn=Three,${base}`, end));
  await done((end) => client.del(dn, end)).catch((error) => say(error.code));
  await done((end) => client.bind(name, 'wrong', end)).catch((error) => say(error.code));
  await done((end) => client.unbind(end));
  process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
