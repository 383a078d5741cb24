// The script of a listing, which works without it. The page names it by its hash.
'use strict';
{
  const filter = document.querySelector('#filter input[type=search]');
  const rows = Array.from(document.querySelectorAll('#entries tr'));
  const shown = () => {
    const wanted = filter.value.toLowerCase();
    for (const row of rows) {
      const name = row.cells[0].textContent.toLowerCase();
      row.toggleAttribute('hidden', !name.includes(wanted));
    }
  };
  if (filter) {
    filter.addEventListener('input', shown);
    shown();
  }

  const form = document.querySelector('#upload');
  const told = document.querySelector('#told');
  const reason = (request, name) => ({
    409: name + ' cannot be stored: something of this name is there, and no file',
    412: name + ' is there already: choose to replace it',
    413: name + ' is longer than a file may be',
    507: 'there is no room left for ' + name,
  })[request.status] || name + ' was refused: ' + request.status;
  // Resolves to why a file is not stored.
  const put = (file) => new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open('PUT', './' + encodeURIComponent(file.name));
    if (!form.elements.replace.checked) request.setRequestHeader('If-None-Match', '*');
    request.upload.onprogress = (at) => {
      told.value = file.name + ': ' + Math.floor(100 * at.loaded / at.total) + ' %';
    };
    request.onload = () => done(request.status < 300 ? '' : reason(request, file.name));
    request.onerror = () => done(file.name + ' was not stored: the connection broke');
    request.send(file);
  });
  const store = async (files) => {
    const missing = [];
    for (const file of files) missing.push(await put(file));
    const why = missing.filter((reason) => reason);
    told.value = why.join('. ');
    if (!why.length) location.reload();
  };
  if (form) {
    told.value = 'or drop files here';
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      store(form.elements.file.files);
    });
    const over = (is) => (event) => {
      event.preventDefault();
      document.body.classList.toggle('drop', is);
    };
    addEventListener('dragover', over(true));
    addEventListener('dragleave', over(false));
    addEventListener('drop', (event) => {
      over(false)(event);
      store(event.dataTransfer.files);
    });
  }
}
