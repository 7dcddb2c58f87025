// ldapts: url name password base. Uses every operation and prints what came of it, a line of JSON each.
const { Attribute, Change, Client } = require('ldapts');
const [url, name, password, base] = process.argv.slice(2);
const say = (value) => console.log(JSON.stringify(value));

async function main() {
  const client = new Client({ url, timeout: 60000 });
  await client.bind(name, password);
  const dn = `cn=Grün,${base}`;
  await client.add(dn, { objectClass: ['person'], cn: 'Grün', sn: 'First' });
  const found = await client.search(base, { scope: 'sub', filter: '(sn=First)', attributes: ['cn', 'sn'] });
  say(found.searchEntries);
  const sn = new Attribute({ type: 'sn', values: ['Second'] });
  await client.modify(dn, new Change({ operation: 'replace', modification: sn }));
  say(await client.compare(dn, 'sn', 'Second'));
  const pages = await client.search(base, { scope: 'sub', filter: '(uid=*)', paged: { pageSize: 4 } });
  say(pages.searchEntries.length);
  await client.modifyDN(dn, `cn=Renamed,${base}`);
  await client.del(`cn=Renamed,${base}`);
  for (const action of [() => client.del(dn), () => client.bind(name, 'wrong')]) {
    await action().catch((error) => say(error.code));
  }
  await client.unbind();
}

main().catch((error) => { console.error(error); process.exit(1); });
