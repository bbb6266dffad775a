/* The library and the data are gzip in base64, for size. */
(async () => {
  const unpack = async id => {
    const text = atob(document.getElementById(id).textContent),
      bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const run = code => document.head.append(Object.assign(document.createElement("script"), { textContent: code }));
  const root = document.getElementById("report");
  try {
    const [library, data] = await Promise.all(["library", "data"].map(unpack));
    run(library);
    show(JSON.parse(data));
  } catch (error) {
    root.textContent = `The report cannot be shown: ${error.message}. It needs a browser of 2023 or later.`;
    throw error;
  }
})();
