// Passkeys: asks the browser for one, puts its answer into the form, sends the form.
// What is asked stands on the page; nothing is fetched, and nothing is kept.
"use strict";

function toBytes(text) {
  const plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(plain, (one) => one.charCodeAt(0));
}

function toText(buffer) {
  const plain = String.fromCharCode(...new Uint8Array(buffer ?? []));
  return btoa(plain).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function read(form) {
  const asked = JSON.parse(form.dataset.options);
  asked.challenge = toBytes(asked.challenge);
  if (asked.user) asked.user.id = toBytes(asked.user.id);
  for (const one of asked.excludeCredentials ?? []) one.id = toBytes(one.id);
  return { publicKey: asked };
}

async function answer(form) {
  const found = await navigator.credentials[form.dataset.passkey](read(form));
  for (const field of form.querySelectorAll("[data-answer]")) {
    const said = field.name === "id" ? found.rawId : found.response[field.name];
    field.value = toText(said);
  }
  form.submit();
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const note = form.previousElementSibling;
  if (window.PublicKeyCredential && form.dataset.origin === location.origin) {
    form.hidden = false;
    note.textContent = "";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      answer(form).catch((error) => {
        note.textContent = `${form.dataset.failed} (${error.name})`;
      });
    });
  }
}
