'use strict';
/* Contend for a lock with npm's redlock, on as many servers as are given.
 *
 * usage: contend.js NAME DIR KEY SOCKET...
 *
 * What each holder does in DIR is told in test_share_clients.c. */
const fs = require('fs');
const path = require('path');
const Redis = require('ioredis');
const Redlock = require('redlock');

const LEASE_MS = 60000;
const PAUSE_MS = 20;

const [name, directory, key, ...sockets] = process.argv.slice(2);
const at = (file) => path.join(directory, file);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/* What is wrong if another does it at the same time. */
async function enter() {
    try {
        fs.closeSync(fs.openSync(at('inside'), 'wx'));
    } catch (error) {
        fs.appendFileSync(at('overlaps'), `${name}\n`);
    }
    const number = Number(fs.readFileSync(at('counter'), 'ascii'));
    await sleep(1);
    fs.writeFileSync(at('counter'), String(number + 1));
    fs.appendFileSync(at('log'), `${name}\n`);
    fs.unlinkSync(at('inside'));
}

async function main() {
    const clients = sockets.map((socket) => new Redis({ path: socket }));
    /* its own pauses, but it never gives up */
    const redlock = new Redlock(clients, { retryCount: -1 });

    while (!fs.existsSync(at('stop'))) {
        const lock = await redlock.lock(key, LEASE_MS);
        await enter();
        try {
            await lock.unlock();
        } catch (error) {
            fs.appendFileSync(at('lost'), `${name}: ${error.message}\n`);
        }
        await sleep(PAUSE_MS * Math.random());
    }
    clients.forEach((client) => client.disconnect());
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
