/** dockerd refuses layer 126 (`maxLayerDepth`), and a container booted at 125 can never be committed again. */
export const MOST_LAYERS = 124;
